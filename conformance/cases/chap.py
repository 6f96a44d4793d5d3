"""Login: CHAP one-way and mutual, access lists, redirection, wrong secrets, and log events of refusals."""

import functools
import re

from ..harness.case import Failed, attempt, case, expect, ok, output, refuse, until
from ..harness.config import Config
from ..harness.gateway import Gateway

PREFIX, HOST = "iqn.2026-11.io.weir:chap", "iqn.2026-11.io.weir:host"
SECRET, MUTUAL, WRONG = "secretsecret12", "mutualmutual12", "wrongwrongwrong"
BOTH = f"?target_user=weir&target_password={MUTUAL}"
TARGETS = {"open": {}, "one-way": {"accounts": ["alice"]}, "mutual": {"accounts": ["alice", "bob"], "mutual": "weir"},
           "listed": {"initiators": [HOST]}, "moved": {"redirect": "127.0.0.1:1"}}
register = functools.partial(case, tools=("iscsi-ls", "iscsi-inq"), limit=180)


class Logins:
    """A gateway with a target of each kind, and logins to it."""

    def __init__(self, run, **discovery):
        secret = run.folder / "mutual.secret"
        secret.write_text(MUTUAL)
        secret.chmod(0o600)
        config = Config().account("alice", secret=SECRET).account("bob", secret="bobbobbobbob1").account("weir", secret_file=secret)
        if discovery:
            config.section("discovery", **discovery)
        for name, keys in TARGETS.items():
            config.volume(name, file=run.folder / f"{name}.img", size="16MiB").target(name, name=f"{PREFIX}.{name}", **keys)
        self.gateway = Gateway(run, config)
        self.gateway.start()

    def inquiry(self, credentials, target, arguments="", *options):
        """The arguments of a login; credentials are `name%secret`, or empty."""
        at = credentials + "@" if credentials else ""
        return ["iscsi-inq", *options, f"iscsi://{at}{self.gateway.portals[0]}/{PREFIX}.{target}/0{arguments}"]

    def may(self, *arguments):
        expect("Vendor:WEIR", *self.inquiry(*arguments))

    def may_not(self, *arguments):
        refuse("Authentication failure", *self.inquiry(*arguments))

    def works(self, *arguments):
        return attempt(*self.inquiry(*arguments), seconds=10)[0] == 0

    def logged(self, status, what):
        """The log's last refusal names a peer, an initiator and the status, and no secret."""
        log = self.gateway.said()
        line = (re.findall("^.*login refused.*$", log, re.M) or ["no login was refused"])[-1]
        if not re.search(rf'peer="?127\.0\.0\.1:[0-9]+"?.*initiator="?iqn\..*status={status}', line):
            raise Failed(f"the log about {what}: {line}")
        if any(secret in log for secret in (SECRET, MUTUAL, WRONG)):
            raise Failed("a secret is in the log")
        ok(f"the log names the peer and {status} for {what}")


@register("chap.targets", "a target accepts only authenticated and authorised initiators, and logs refusals", gate={})
def targets(run):
    logins = Logins(run)
    logins.may("", "open")
    logins.may(f"alice%{SECRET}", "one-way")
    logins.may_not(f"alice%{WRONG}", "one-way")
    logins.logged("AuthenticationFailure", "a wrong secret")
    logins.may_not(f"mallory%{SECRET}", "one-way")
    logins.logged("AuthenticationFailure", "an unknown name")
    logins.may_not("bob%bobbobbobbob1", "one-way")
    logins.logged("AuthenticationFailure", "a user of another target")
    logins.may_not("", "one-way")
    logins.logged("AuthenticationFailure", "no attempt to authenticate")
    logins.may(f"alice%{SECRET}", "mutual", BOTH)
    logins.may("bob%bobbobbobbob1", "mutual", BOTH)
    # RFC 7143 section 12.1.3: mutual authentication is optional for the initiator.
    logins.may(f"alice%{SECRET}", "mutual")
    refuse("CHAP_R|[Aa]uthentication|Invalid",
           *logins.inquiry(f"alice%{SECRET}", "mutual", "?target_user=weir&target_password=mutualmutualXX"))
    # A restart resets the failure count of alice at this address; after six failures the account would be delayed.
    logins.gateway.restart()
    logins.may_not(f"alice%{WRONG}", "mutual", BOTH)
    # The target's own secret must not work for a login.
    logins.may_not(f"weir%{MUTUAL}", "mutual", BOTH)
    logins.logged("AuthenticationFailure", "the credentials of the gateway itself")
    logins.gateway.stop()


@register("chap.initiators", "login and discovery respect access lists and redirections", gate={})
def initiators(run):
    logins = Logins(run)
    portal = logins.gateway.portals[0]
    expect("Vendor:WEIR", *logins.inquiry("", "listed", "", "-i", HOST))
    refuse("Authorization failure|Target not found|login", *logins.inquiry("", "listed", "", "-i", HOST + ".other"))
    logins.logged("(AuthorizationFailure|NotFound)", "a name that is not on the list")
    expect(re.escape(f"{PREFIX}.listed"), "iscsi-ls", "-i", HOST, f"iscsi://{portal}")
    shown = output("iscsi-ls", "-i", HOST + ".other", f"iscsi://{portal}")
    if f"{PREFIX}.listed" in shown or f"{PREFIX}.open" not in shown:
        raise Failed(f"discovery shows the wrong targets: {shown}")
    ok("discovery shows only targets that the initiator may use")
    # libiscsi follows the redirection to a port without a listener. This never counts as a failed login.
    for _ in range(7):
        refuse(".", *logins.inquiry("", "moved"), seconds=10)
    logins.logged("TargetMovedTemporarily", "a redirected target")
    logins.may("", "open")
    logins.gateway.stop()


@register("chap.discovery", "discovery has separate users, and a reload activates a new secret", gate={})
def discovery(run):
    logins = Logins(run, accounts=["alice"], mutual="weir")
    portal = logins.gateway.portals[0]
    expect(f"Target:{PREFIX}.open", "iscsi-ls", f"iscsi://alice%{SECRET}@{portal}")
    refuse("Authentication failure|[Ff]ailed", "iscsi-ls", f"iscsi://alice%{WRONG}@{portal}")
    logins.logged("AuthenticationFailure", "discovery with a wrong secret")
    refuse("Authentication failure|[Ff]ailed", "iscsi-ls", f"iscsi://{portal}")
    logins.logged("AuthenticationFailure", "discovery without a secret")
    # Discovery authentication does not apply to targets.
    logins.may("", "open")
    logins.may_not("", "one-way")
    logins.gateway.config.change("account", "alice", secret="anothersecret1")
    logins.gateway.reload()
    until(lambda: logins.works("alice%anothersecret1", "one-way"), "the new secret is active", 10, 0.1)
    logins.may_not(f"alice%{SECRET}", "one-way")
    logins.gateway.stop()


@register("chap.guesses", "after six failures even a correct login of a new host is delayed, and the log has the reason", gate={})
def guesses(run):
    logins = Logins(run)
    known = logins.inquiry(f"alice%{SECRET}", "one-way", "", "-i", HOST + ".known")
    expect("Vendor:WEIR", *known)
    for _ in range(6):
        logins.may_not(f"alice%{WRONG}", "one-way")
    refuse(".", *logins.inquiry(f"alice%{SECRET}", "one-way"))
    if not re.search(r'login refused peer="?127\.0\.0\.1:[0-9]*"?.*ServiceUnavailable.*too many failed logins', logins.gateway.said()):
        raise Failed("the log has no event about too many failed logins")
    expect("Vendor:WEIR", *known)
    expect("Vendor:WEIR", *logins.inquiry("bob%bobbobbobbob1", "mutual", BOTH))
    ok("a host that has logged in before and a host with another account are not delayed")
    until(lambda: logins.works(f"alice%{SECRET}", "one-way"), "the wait is over", 30, 0.1)
    logins.gateway.stop()
