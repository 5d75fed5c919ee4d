-- ARGV: idempotency keys.
-- Returns for each key its mark (or nil), then nil or {sequence, entries with that id}: one entry, or none if
-- it is gone.
local found = {}
for i = 1, #ARGV do
  found[2 * i - 1] = redis.call('HGET', KEYS[6], 'key ' .. ARGV[i])
  local sequence = redis.call('HGET', KEYS[3], ARGV[i])
  if sequence then
    local id = sequence .. '-0'
    found[2 * i] = {sequence, redis.call('XRANGE', KEYS[2], id, id)}
  else
    found[2 * i] = false
  end
end
return found
