-- ARGV: first and last name (as ZRANGEBYLEX takes them), how many.
-- Returns sequence, hash, mark of the end, then name, value, mark of each blob.
local found = {head[1], head[2], mark}
for i, name in ipairs(redis.call('ZRANGEBYLEX', KEYS[5], ARGV[1], ARGV[2], 'LIMIT', 0, ARGV[3])) do
  found[3 * i + 1] = name
  found[3 * i + 2] = redis.call('HGET', KEYS[4], name)
  found[3 * i + 3] = redis.call('HGET', KEYS[6], name)
end
return found
