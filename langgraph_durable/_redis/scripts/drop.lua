-- Remove a thread. Answers the runs that wrote to it.
-- ARGV 1 the token of its last write, if it must still be that one
if ARGV[1] ~= '' and string.sub(tokens or '', 1, TOKEN) ~= ARGV[1] then return {'STALE'} end
local runs = {}
for _, field in ipairs(call('HKEYS', H)) do
  if string.byte(field) == 114 then runs[#runs + 1] = string.sub(field, 2) end
end
return call('UNLINK', H, X) > 0 and {'OK', runs} or {'NONE'}
