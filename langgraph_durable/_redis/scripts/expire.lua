-- Give a thread a life of its own. ARGV 1 milliseconds from each use on; 0 for ever
if not epoch then return is_broken() and {'BROKEN'} or {'NONE'} end
call('HSET', H, 'l', ARGV[1])
life = ARGV[1]
if life == '0' then
  call('PERSIST', H)
  call('PERSIST', X)
else
  renew('')
end
return {'OK'}
