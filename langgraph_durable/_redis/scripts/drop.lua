-- Remove a thread. Answers the runs that wrote to it.
-- ARGV 1 the token of its last write, if it must still be that one, 2 milliseconds of a tombstone,
-- 3 the greatest id that can have been made by now
if ARGV[1] ~= '' and string.sub(tokens or '', 1, TOKEN) ~= ARGV[1] then return {'STALE'} end
local runs, size, claims, counts = {}, 0, 0, {[99] = 0, [119] = 0, [105] = 0}
for _, field in ipairs(call('HKEYS', H)) do
  local kind = string.byte(field)
  if kind == 97 then claims = claims + 1 end
  if kind == 114 then runs[#runs + 1] = string.sub(field, 2) end
  if counts[kind] then counts[kind] = counts[kind] + 1 end
  if counts[kind] or kind == 116 then size = size + call('HSTRLEN', H, field) end
  if kind == 119 then -- a page: as many as there are tasks on it
    local is_good, tasks = pcall(tasks_on, call('HGET', H, field))
    if is_good then counts[kind] = counts[kind] + #tasks - 1 end
  end
end
local last = call('ZREVRANGE', X, 0, 0)[1]
if not epoch and not last then return {'NONE'} end
call('UNLINK', H, X)
if last then -- after the removal: a server that is full lets a script go on that has written
  last = string.match(last, '^[^%z]*')
  call('HSET', H, 'd', less(last, ARGV[3]) and ARGV[3] or last)
  call('PEXPIRE', H, ARGV[2])
end
return {'OK', runs, counts[99], counts[119], counts[105], size, claims}
