-- ARGV: first id, how many.
-- Returns the sequence of the head, and the entries.
return {head[1], redis.call('XRANGE', KEYS[2], ARGV[1], '+', 'COUNT', ARGV[2])}
