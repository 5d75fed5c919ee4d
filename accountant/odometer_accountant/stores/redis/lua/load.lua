-- ARGV: names of blobs.
-- Returns sequence, hash, mark of the end, then for each name the blob (or nil) and its mark (or nil).
local found = {head[1], head[2], mark}
for i = 1, #ARGV do
  found[2 * i + 2] = redis.call('HGET', KEYS[4], ARGV[i])
  found[2 * i + 3] = redis.call('HGET', KEYS[6], ARGV[i])
end
return found
