# Runs the server that all tests of a run share, and ends it when nobody has used it for a while.
#
# Every process that uses the server holds a shared lock on $lock. The kernel releases it when the process ends, however
# it ends, so an exclusive lock can be had exactly when nobody uses the server. It is kept while the server goes, so
# that nobody can come to use it meanwhile.
#
# Arguments: the lock, the server's home, how many seconds to linger, the server's program and its arguments.
lock=$1 home=$2 linger_s=$3
shift 3

exec 9<"$lock" || exit 1

# Where the means for it exist, the server also ends when this shell is killed.
guard=
if setpriv --pdeathsig QUIT true 2>/dev/null; then
    guard='setpriv --pdeathsig QUIT'
fi
$guard "$@" 9<&- &
server=$!

# An immediate shutdown: the data go with it.
finish() {
    trap - HUP INT TERM
    kill -QUIT "$server" 2>/dev/null
    wait "$server"
    rm -rf "$home"
    exit 0
}
trap finish HUP INT TERM

idle_s=0
while kill -0 "$server" 2>/dev/null; do
    sleep 1
    if ! flock -n -x 9; then
        idle_s=0
    elif [ "$idle_s" -ge "$linger_s" ]; then
        finish
    else
        flock -u 9
        idle_s=$((idle_s + 1))
    fi
done

# The server ended by itself. Its log stays, for whoever asks why.
wait "$server"
