#!/usr/bin/env bash
# Who may log in: libiscsi with right and wrong secrets, one-way and mutual, for targets and for
# discovery; access lists, redirection, guesses, and what the log says of those who were refused.
set -euo pipefail
. "$(dirname "$0")/gateway.sh"
need iscsi-ls iscsi-inq python3

PREFIX=iqn.2026-11.io.weir:chap
HOST=iqn.2026-11.io.weir:host
SECRET=secretsecret12
MUTUAL=mutualmutual12
printf '%s' "$MUTUAL" >"$WORK/mutual.secret"
chmod 600 "$WORK/mutual.secret"

# configure DISCOVERY: the configuration with these lines about discovery
configure() {
  cat >"$WORK/weir.toml" <<TOML
[iscsi]
listen = ["127.0.0.1:0"]
$1
[[account]]
name = "alice"
secret = "$SECRET"
[[account]]
name = "bob"
secret = "bobbobbobbob1"
[[account]]
name = "weir"
secret_file = "$WORK/mutual.secret"
TOML
  local name
  for name in open one-way mutual listed moved; do
    cat >>"$WORK/weir.toml" <<TOML
[[volume]]
name = "$name"
file = "$WORK/$name.img"
size = "16MiB"
[[target]]
name = "$PREFIX.$name"
luns = { 0 = "$name" }
TOML
    case $name in
      one-way) echo 'accounts = ["alice"]' ;;
      mutual) echo 'accounts = ["alice", "bob"]'; echo 'mutual = "weir"' ;;
      listed) echo "initiators = [\"$HOST\"]" ;;
      moved) echo 'redirect = "127.0.0.1:1"' ;;
    esac >>"$WORK/weir.toml"
  done
}

inquiry() { # inquiry CREDENTIALS TARGET [ARGUMENTS] [OPTION...]: credentials end in @
  local url="iscsi://$1$PORTAL/$PREFIX.$2/0${3:-}"
  shift 3 || shift $#
  timeout 60 iscsi-inq "$@" "$url"
}
both="?target_user=weir&target_password=$MUTUAL"
wrong="?target_user=weir&target_password=mutualmutualXX"

login_may() { expect 'Vendor:WEIR' inquiry "$@"; }
login_may_not() { refuse 'Authentication failure' inquiry "$@"; }
# logged STATUS WHAT: the log's last refusal names a peer, its name and the status
logged() {
  local line
  line=$(grep 'login refused' "$WORK/log" | tail -1)
  grep -qE "peer=\"?127\.0\.0\.1:[0-9]+\"?.*initiator=\"?iqn\..*status=$1" <<<"$line" || fail "the log about $2: $line"
  if grep -qE "$SECRET|$MUTUAL|wrongwrongwrong" "$WORK/log"; then fail "a secret is in the log"; fi
  echo "ok   the log names the peer and $1 for $2"
}

# again: what was held against this machine is forgotten; six failures and it would have to wait.
again() { stop; serve; }

configure ''
serve
echo '--- targets'
login_may '' open
login_may "alice%$SECRET@" one-way
login_may_not 'alice%wrongwrongwrong@' one-way
logged AuthenticationFailure 'a wrong secret'
login_may_not 'mallory%secretsecret12@' one-way
logged AuthenticationFailure 'an unknown name'
login_may_not 'bob%bobbobbobbob1@' one-way
logged AuthenticationFailure 'an account of another target'
login_may_not '' one-way
logged AuthenticationFailure 'no attempt to authenticate'
login_may "alice%$SECRET@" mutual "$both"
login_may 'bob%bobbobbobbob1@' mutual "$both"
# RFC 7143 section 12.1.3: the initiator need not ask the target to prove itself.
login_may "alice%$SECRET@" mutual
refuse 'CHAP_R|[Aa]uthentication|Invalid' inquiry "alice%$SECRET@" mutual "$wrong"
again
login_may_not 'alice%wrongwrongwrong@' mutual "$both"
# The account by which the target proves itself is not one to log in with.
login_may_not "weir%$MUTUAL@" mutual "$both"
logged AuthenticationFailure 'the account of the gateway itself'

echo '--- initiators'
expect 'Vendor:WEIR' inquiry '' listed '' -i "$HOST"
refuse 'Authorization failure|Target not found|login' inquiry '' listed '' -i "$HOST.other"
logged '(AuthorizationFailure|NotFound)' 'a name that is not on the list'
expect "$PREFIX.listed" iscsi-ls -i "$HOST" "iscsi://$PORTAL"
list=$(iscsi-ls -i "$HOST.other" "iscsi://$PORTAL")
if grep -qF "$PREFIX.listed" <<<"$list"; then fail "a target is shown to those who may not use it: $list"; fi
grep -qF "$PREFIX.open" <<<"$list" || fail "discovery shows too little: $list"
echo "ok   discovery shows what one may use"
# libiscsi follows a redirection; nobody listens there. That is no guess, however often it happens.
for _ in $(seq 7); do refuse '.' timeout 10 iscsi-inq "iscsi://$PORTAL/$PREFIX.moved/0" >/dev/null; done
logged TargetMovedTemporarily 'a target that is elsewhere'
login_may '' open
stop

echo '--- discovery'
configure $'[discovery]\naccounts = ["alice"]\nmutual = "weir"'
serve
expect "Target:$PREFIX.open" iscsi-ls "iscsi://alice%$SECRET@$PORTAL"
refuse 'Authentication failure|[Ff]ailed' iscsi-ls "iscsi://alice%wrongwrongwrong@$PORTAL"
logged AuthenticationFailure 'discovery with a wrong secret'
refuse 'Authentication failure|[Ff]ailed' iscsi-ls "iscsi://$PORTAL"
logged AuthenticationFailure 'discovery without a secret'
# What guards discovery does not guard targets.
login_may '' open
login_may_not '' one-way

echo '--- a new secret without a restart'
sed -i "s/^secret = \"$SECRET\"/secret = \"anothersecret1\"/" "$WORK/weir.toml"
kill -HUP "$PID"
for _ in $(seq 50); do
  if timeout 10 iscsi-inq "iscsi://alice%anothersecret1@$PORTAL/$PREFIX.one-way/0" >/dev/null 2>&1; then break; fi
  sleep 0.1
done
login_may 'alice%anothersecret1@' one-way
login_may_not "alice%$SECRET@" one-way
stop

echo '--- who guesses must wait'
configure ''
serve
for _ in $(seq 6); do login_may_not 'alice%wrongwrongwrong@' one-way >/dev/null; done
refuse '.' inquiry "alice%$SECRET@" one-way
grep -q 'connection refused peer="\?127.0.0.1:[0-9]*"\?.*too many failed logins' "$WORK/log" || fail "the log does not say so"
echo "ok   after six failures even the right secret has to wait, and the log says why"
for _ in $(seq 50); do
  if inquiry "alice%$SECRET@" one-way >/dev/null 2>&1; then break; fi
  sleep 0.1
done
login_may "alice%$SECRET@" one-way
stop
