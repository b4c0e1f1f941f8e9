#!/bin/bash
# Stands for `ratelimit-server`, `cargo` and `redis-cli` while the lines of a page are typed, see mod.rs.
set -eu

# The port that is used for a port of the page.
used() {
    local port
    port=$(sed -n "s/^$1 //p" "$TYPED_STATE/ports")
    [ -n "$port" ] || { echo "port $1 is not on the page" >&2; exit 2; }
    echo "$port"
}

# Waits until the server of that port serves, and prints its start screen.
await() {
    local out=$TYPED_STATE/$1.out url
    for _ in $(seq 500); do
        url=$(sed -n 's|.*\(https\{0,1\}://[^ ]*\).*|\1|p' "$out" 2>/dev/null | head -n 1)
        case $url in
        '') ;;
        *) if [ ! -e "$TYPED_STATE/$1.server" ] || is_ready "$url"; then cat "$out"; return 0; fi ;;
        esac
        sleep 0.02
    done
    echo "no server listens" >&2
    cat "$out" "$TYPED_STATE/$1.log" >&2
    return 1
}

is_ready() {
    grep -q '^  try ' "$out" && curl -q -kfs -o /dev/null "$1/actuator/health/readiness"
}

# Starts a server on a port, in place of an earlier one.
serve() {
    local port=$1 file=$TYPED_STATE/$1
    shift
    if [ -e "$file.pid" ]; then
        kill -KILL "$(cat "$file.pid")" 2>/dev/null || true
        while (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; do sleep 0.02; done
    fi
    rm -f "$file.out" "$file.server"
    [ "$1" != "$TYPED_SERVER" ] || touch "$file.server"
    if [ -n "${TYPED_STAYS-}" ]; then
        echo $$ >"$file.pid"
        echo "$port" >"$TYPED_STATE/stays.$TYPED_STAYS"
        exec "$@" >"$file.out" 2>"$file.log"
    fi
    "$@" >"$file.out" 2>"$file.log" &
    echo $! >"$file.pid"
    await "$port"
}

server() {
    local address='' delay='--drain-delay 0' config='' previous=''
    for word in "$@"; do
        case $previous in
        --listen) address=$word ;;
        --config) config=$word ;;
        esac
        case $word in
        simulate | check-config | client-key | completions | help | --help | -h | --version | -V) exec "$TYPED_SERVER" "$@" ;;
        health) RATELIMIT_LISTEN=127.0.0.1:$(used 8080) exec "$TYPED_SERVER" "$@" ;;
        --listen=*) address=${word#*=} ;;
        --config=*) config=${word#*=} ;;
        --drain-delay*) delay='' ;;
        esac
        previous=$word
    done
    if [ -z "$address" ] && [ -n "$config" ]; then
        address=$(sed -n 's/^listen *[:=] *"\{0,1\}\([^" ]*\).*/\1/p' "$config")
    fi
    if [ -z "$address" ]; then
        address=127.0.0.1:$(used 8080)
        set -- --listen "$address" "$@"
    fi
    # shellcheck disable=SC2086
    serve "${address##*:}" "$TYPED_SERVER" $delay "$@"
}

example() {
    local name=$1 source=$TYPED_SOURCES/$1.rs port
    shift
    [ -e "$source" ] || { echo "there is no example $name" >&2; exit 2; }
    port=$(sed -n 's/.*"127\.0\.0\.1:\([1-9][0-9]*\)".*/\1/p' "$source" | head -n 1)
    if [ $# = 0 ]; then
        [ -z "$port" ] || set -- "127.0.0.1:$(used "$port")"
        ! grep -q '"redis://127.0.0.1:6379"' "$source" || set -- "$@" "redis://127.0.0.1:$(used 6379)"
    fi
    [ -n "$port" ] || exec "$TYPED_EXAMPLES/$name" "$@"
    serve "${1##*:}" "$TYPED_EXAMPLES/$name" "$@"
}

cargo() {
    case ${1-} in
    xtask | nextest) exit 0 ;;
    test) case " $* " in *' --doc '*) exit 0 ;; esac ;;
    run)
        shift
        local package='' name=''
        while [ $# -gt 0 ] && [ "$1" != -- ]; do
            case $1 in
            -p) package=$2; shift ;;
            --bin) name=$2; shift ;;
            -q | --quiet | --release) ;;
            *) package=''; break ;;
            esac
            shift
        done
        [ "${1-}" != -- ] || shift
        case $package in
        ratelimit-server) server "$@"; return ;;
        ratelimit-examples) example "$name" "$@"; return ;;
        esac
        ;;
    esac
    echo "no test types this command: fence it with 'sh untested'" >&2
    exit 2
}

case ${0##*/} in
cargo) cargo "$@" ;;
ratelimit-server) server "$@" ;;
redis-cli) PATH=${PATH#*:} exec redis-cli -p "$(used 6379)" "$@" ;;
typed-ready)
    while [ ! -e "$TYPED_STATE/stays.$1" ]; do sleep 0.02; done
    await "$(cat "$TYPED_STATE/stays.$1")"
    ;;
esac
