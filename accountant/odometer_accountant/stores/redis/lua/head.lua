-- Starts every other script: reads the head, and stops at damage that shows already there.
-- It reads each key, so that a key of the wrong type is found before anything is written.
--
-- KEYS of every script, the six keys of one stream:
--   1 head     hash: sequence, hash
--   2 entries  Redis Stream: ids <sequence>-0, fields h (hash) and b (body)
--   3 keys     hash: idempotency key -> sequence
--   4 blobs    hash: name -> value
--   5 names    sorted set, all scores 0: the names of the blobs (one page costs the same, however many there are)
--   6 marks    hash: name -> mark; the mark of the stream's end under '', the mark of a key under 'key <key>'
local head = redis.call('HMGET', KEYS[1], 'sequence', 'hash')
local entries = redis.call('XLEN', KEYS[2])
local keys = redis.call('HLEN', KEYS[3])
local blobs = redis.call('HLEN', KEYS[4])
if blobs ~= redis.call('ZCARD', KEYS[5]) then
  return redis.error_reply('PODAMAGED there are not as many blobs as names of blobs')
end
local mark = redis.call('HGET', KEYS[6], '')
if not head[1] and not head[2] then
  if entries > 0 or keys > 0 or blobs > 0 or redis.call('HLEN', KEYS[6]) > 0 then
    return redis.error_reply('PODAMAGED the head is gone, but the rest is there')
  end
  head = {'0', ''}
elseif not head[1] or not head[2] then
  return redis.error_reply('PODAMAGED a part of the head is gone')
end
