# What tests/run, tests/chaos and tests/simulate need, set up: Debian packages where root may install them, a virtual
# environment with oncecron and the plugins that are here as a user installs them. To be sourced by bash in the top
# directory; afterwards `venv` names the environment.
#
# As root missing packages are installed and everything must be proved: a test that cannot run here
# fails. ONCECRON_TEST_VENV names another directory than .venv-test. ONCECRON_TEST_PYTHON is a version of CPython, which
# gets a directory beside that one.
export PATH="$PATH:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
export LC_ALL=C.UTF-8
venv=$(realpath -m "${ONCECRON_TEST_VENV:-.venv-test}")
pythons="$venv/pythons"
venv="$venv${ONCECRON_TEST_PYTHON:+-$ONCECRON_TEST_PYTHON}"
root=$([ "$(id -u)" = 0 ] && echo yes || echo no)

say() { printf '%s: %s\n' "$0" "$*" >&2; }

installed() { command -v "$1" >/dev/null; }

# The real interpreter, not a shim in front of it.
find_python() {
  local name
  for name in python3 python3.13 python3.12 python3.11 /usr/bin/python3; do
    "$name" -c 'import sys; assert sys.version_info >= (3, 11); print(sys.executable)' \
      2>/dev/null && return
  done
  return 1
}

python=$(find_python || true)
if [ -n "${ONCECRON_TEST_PYTHON:-}" ]; then
  python=$("$python" tests/pythons.py "$ONCECRON_TEST_PYTHON" "$pythons")
fi

missing_packages() {
  if [ -z "$python" ]; then echo python3 python3-venv; fi
  if [ -n "$python" ] && ! "$python" -c 'import venv, ensurepip' 2>/dev/null; then
    echo python3-venv
  fi
  compgen -G '/usr/lib/postgresql/*/bin/initdb' >/dev/null || echo postgresql
  compgen -G '/usr/lib/*/faketime/libfaketime.so.1' >/dev/null || echo faketime
  installed pgbouncer || echo pgbouncer
  installed cron || echo cron
  installed iptables || echo iptables
  installed ip || echo iproute2
  installed redis-server || echo redis-server
  installed openssl || echo openssl
  installed ps || echo procps
  installed setpriv || echo util-linux
  installed man || echo man-db
  installed jq || echo jq
  installed zsh || echo zsh
  installed fish || echo fish
  installed tmux || echo tmux
  installed spin || echo spin
  installed systemd-analyze || echo systemd
  installed gcc || echo gcc
  installed chromium || echo chromium
  [ -e /usr/share/fonts/truetype/dejavu/DejaVuSans.ttf ] || echo fonts-dejavu-core
  installed git || echo git
  installed gpg || echo gnupg
  installed bsdtar || echo libarchive-tools
  if [ "${ONCECRON_TEST_ROOTS:-}" = all ]; then
    installed debootstrap || echo debootstrap
    installed lintian || echo lintian
  fi
  [ "${ONCECRON_TEST_VERSIONS:-}" != all ] || installed npm || echo npm
  [ -e /usr/include/stdio.h ] || echo libc6-dev
  [ -z "${ONCECRON_TEST_SYSTEMS:-}" ] || installed debootstrap || echo debootstrap
}

# The packages' own services are not wanted: a policy that exists only meanwhile forbids starting.
install_packages() {
  local policy=/usr/sbin/policy-rc.d
  if [ ! -e "$policy" ]; then
    trap 'rm -f /usr/sbin/policy-rc.d' EXIT
    printf '#!/bin/sh\nexit 101\n' >"$policy"
    chmod 755 "$policy"
  else
    policy=
  fi
  export DEBIAN_FRONTEND=noninteractive
  apt-get -q update >&2 || say "apt-get update failed; trying with the lists that are here"
  apt-get -q install -y --no-install-recommends -o DPkg::Lock::Timeout=300 "$@" >&2
  if [ -n "$policy" ]; then
    rm -f "$policy"
    trap - EXIT
  fi
}

set_up_system() {
  local missing
  mapfile -t missing < <(missing_packages | tr ' ' '\n')
  [ ${#missing[@]} -gt 0 ] || return 0
  if [ "$root" = no ]; then
    say "these Debian packages are missing; install them with:"
    printf 'sudo apt-get update && sudo apt-get install -y --no-install-recommends %s\n' "${missing[*]}" >&2
    case " ${missing[*]} " in *" python3"* | *" postgresql "*) exit 69 ;; esac
    say "going on without: tests that need them are skipped as NOT PROVEN"
    return 0
  fi
  say "installing ${missing[*]}"
  install_packages "${missing[@]}"
  python=$(find_python) || {
    say "Python 3.11 or newer is needed; found $(python3 --version 2>&1 || echo none)"
    exit 69
  }
}

digest() { sha256sum | cut -d ' ' -f 1; }

# The distributions, of one version: that of a host, and those of the plugins that are here.
distributions=(. $(compgen -G './plugins/*/pyproject.toml' | xargs -r dirname || true))

sources_digest() {
  find oncecron $(compgen -G 'plugins/*/oncecron_*') "${distributions[@]/%//pyproject.toml}" README.md LICENSE -type f ! -name '*.pyc' -print0 |
    sort -z | xargs -0 sha256sum | digest
}

from_pyprojects() {
  "$python" -c "import sys, tomllib
for path in sys.argv[1:]:
    project = tomllib.load(open(path + '/pyproject.toml', 'rb'))
    print($1)" "${distributions[@]}"
}

dependencies_digest() {
  { "$python" -VV; from_pyprojects "project['project'], project['build-system']"; cat tests/requirements.txt; } | digest
}

# Every package in the version and with the hashes of the lock file, also those that build, without isolation: so a
# change of the sources costs a second and needs no network.
set_up_venv() {
  local dependencies sources stamp="$venv/.installed"
  mkdir -p "$venv"
  exec 9>"$venv/.lock"
  flock 9
  echo '*' >"$venv/.gitignore"  # also where the checkout's own does not name it
  dependencies=$(dependencies_digest)
  sources=$(sources_digest)
  if ! grep -qs "^dependencies $dependencies$" "$stamp" || [ ! -x "$venv/bin/pytest" ]; then
    say "setting up $venv"
    rm -rf "$venv"/{bin,lib,lib64,include,pyvenv.cfg} "$stamp"
    "$python" -m venv "$venv"
    pip install --require-hashes -r tests/requirements.txt
    pip install --no-build-isolation --no-deps "${distributions[@]}"
  elif ! grep -qs "^sources $sources$" "$stamp"; then
    pip install --no-build-isolation --no-deps --force-reinstall "${distributions[@]}"
  fi
  printf 'dependencies %s\nsources %s\n' "$dependencies" "$sources" >"$stamp"
  exec 9>&-
}

# As a release, whose --version is the same from one commit to the next.
pip() {
  ONCECRON_BUILD_RELEASE=yes "$venv/bin/python" -m pip --disable-pip-version-check --no-input -q "$@" --root-user-action ignore
}

set_up_system
set_up_venv
if [ "$root" = yes ]; then export ONCECRON_REQUIRE_ALL=1; fi
