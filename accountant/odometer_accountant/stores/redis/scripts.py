"""The Lua scripts. Each runs as one step of the server. They compare and move bytes, and add up nothing.

KEYS of each are the six keys of one stream: head (a hash: sequence, hash), entries (a Redis Stream, ids
`<sequence>-0`, fields h and b), keys (a hash: key → sequence), blobs (a hash: name → value), names (a
sorted set, all scores 0: the names of the blobs; so a page of them costs the same however many there are) and
marks (a hash: name → mark; that of the end of the stream under '', that of a key under `key <key>`). Marks
are compared by who reads them.
"""

from dataclasses import dataclass
from hashlib import sha1
from typing import Final

STALE: Final = 0
DONE: Final = 1
KEY_TAKEN: Final = 2
DAMAGED: Final = "PODAMAGED"
"""First word of an error reply that says: what is stored contradicts itself."""


@dataclass(frozen=True, slots=True)
class Script:
    """A script's source, and the SHA-1 under which the server remembers it."""

    source: str
    sha: str


def _script(source: str) -> Script:
    # SHA-1 is how Redis names scripts; it protects nothing here.
    return Script(source, sha1(source.encode(), usedforsecurity=False).hexdigest())


# The head, or the damage that is seen from it. Reads each key, so that one of a wrong type is found before
# anything is written.
_HEAD = """
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
"""

# ARGV: expected sequence and hash, new sequence and hash, where the keys begin, where the blobs begin, the
# mark of the new end, 1 where the stream is to have marks though it has none; then id, hash, body of each
# entry; key, sequence, mark of each key; name, value, mark (or '') of each blob.
# All refusals come before the first write. The head is first written as it is: a user who may not write is
# stopped there, with nothing changed. XADD refuses an id that is not above the last one (damage); the first
# decides for all, and after it nothing can fail.
APPEND = _script(
    _HEAD
    + """
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
"""
)

# ARGV: names of blobs. Returns sequence, hash, mark of the end, then each blob or nil and its mark or nil.
LOAD = _script(
    _HEAD
    + """
local found = {head[1], head[2], mark}
for i = 1, #ARGV do
  found[2 * i + 2] = redis.call('HGET', KEYS[4], ARGV[i])
  found[2 * i + 3] = redis.call('HGET', KEYS[6], ARGV[i])
end
return found
"""
)

# ARGV: first id, how many. Returns the sequence of the head, and the entries.
ENTRIES = _script(
    _HEAD
    + """
return {head[1], redis.call('XRANGE', KEYS[2], ARGV[1], '+', 'COUNT', ARGV[2])}
"""
)

# ARGV: keys. Returns for each its mark or nil, then nil or its sequence and the entries with that id (one, or
# none if it is gone).
FIND = _script(
    _HEAD
    + """
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
"""
)

# ARGV: where the names begin and end (as ZRANGEBYLEX takes them), how many.
# Returns sequence, hash, mark of the end, then name, value, mark, name, …
BLOBS = _script(
    _HEAD
    + """
local found = {head[1], head[2], mark}
for i, name in ipairs(redis.call('ZRANGEBYLEX', KEYS[5], ARGV[1], ARGV[2], 'LIMIT', 0, ARGV[3])) do
  found[3 * i + 1] = name
  found[3 * i + 2] = redis.call('HGET', KEYS[4], name)
  found[3 * i + 3] = redis.call('HGET', KEYS[6], name)
end
return found
"""
)
