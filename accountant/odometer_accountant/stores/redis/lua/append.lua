-- Appends entries, keys and blobs. Returns 0 for a stale head, 1 when done, 2 when a key is taken.
--
-- ARGV: 1 expected sequence, 2 expected hash, 3 new sequence, 4 new hash, 5 index of the first key,
--   6 index of the first blob, 7 mark of the new end, 8 '1' to give marks to a stream that has none;
--   then from 9: id, hash, body of each entry; key, sequence, mark of each key; name, value, mark (or '') of
--   each blob.
--
-- Every refusal comes before the first write. The head is first written unchanged: a user without the right to
-- write stops there, and nothing has changed. XADD refuses an id that is not above the last one (damage). The
-- first XADD decides for all: after it nothing can fail.
if head[1] ~= ARGV[1] or head[2] ~= ARGV[2] then return 0 end
keys, blobs = tonumber(ARGV[5]), tonumber(ARGV[6])
for i = keys, blobs - 1, 3 do
  if redis.call('HEXISTS', KEYS[3], ARGV[i]) == 1 then return 2 end
end
local marked = mark or head[1] == '0' or ARGV[8] == '1'
if not marked and blobs <= #ARGV then
  return redis.error_reply('PODAMAGED it was not counted again since an earlier version wrote it')
end
redis.call('HSET', KEYS[1], 'sequence', head[1], 'hash', head[2])
for i = 9, keys - 1, 3 do
  redis.call('XADD', KEYS[2], ARGV[i], 'h', ARGV[i + 1], 'b', ARGV[i + 2])
end
for i = keys, blobs - 1, 3 do
  redis.call('HSET', KEYS[3], ARGV[i], ARGV[i + 1])
  if marked then redis.call('HSET', KEYS[6], 'key ' .. ARGV[i], ARGV[i + 2]) end
end
for i = blobs, #ARGV, 3 do
  if redis.call('HSET', KEYS[4], ARGV[i], ARGV[i + 1]) == 1 then
    redis.call('ZADD', KEYS[5], 0, ARGV[i])
  end
  if ARGV[i + 2] ~= '' then redis.call('HSET', KEYS[6], ARGV[i], ARGV[i + 2]) end
end
redis.call('HSET', KEYS[1], 'sequence', ARGV[3], 'hash', ARGV[4])
if marked then redis.call('HSET', KEYS[6], '', ARGV[7]) end
return 1
