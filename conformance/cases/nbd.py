"""Third-party NBD clients with the gateway: libnbd's tools, QEMU, fio, over TCP, TLS and a Unix socket."""

import asyncio

from ..harness import fio
from ..harness.case import Failed, case, expect, ok, output, refuse, same_files, until
from ..harness.config import Config
from ..harness.gateway import Gateway
from ..harness.nbd import address_of
from .interop import ROUND_TRIP, qemu_io
from .nbd_malformed import BEFORE_TLS, READ_ONLY, WRITABLE, suite

MIB = 256
SIZE = MIB << 20
TOOLS = ("nbdinfo", "nbdcopy", "qemu-io", "qemu-img", "fio")


class Exports:
    """A gateway that exports `disk`, and `constant` read-only, over TCP and a Unix socket."""

    def __init__(self, run, **nbd):
        self.socket = run.folder / "nbd.socket"
        run.image("constant.img", 16)
        config = Config().nbd("disk", "constant", listen=["127.0.0.1:0"], unix=self.socket, **nbd)
        config.volume(file=run.folder / "disk.img", size=f"{MIB}MiB").target()
        config.volume("constant", file=run.folder / "constant.img", size="16MiB", read_only=True)
        self.gateway = Gateway(run, config)
        self.gateway.start()

    @property
    def tcp(self):
        return self.gateway.uri()

    @property
    def local(self):
        return f"nbd+unix:///disk?socket={self.socket}"

    def malformed(self, cases, export="disk", neighbour=True):
        asyncio.run(suite(address_of(self.gateway.nbd), export, cases, neighbour))


@case("nbd.clients", "nbdinfo, nbdcopy, QEMU and fio list and use an export and verify its data, over TCP and a Unix socket",
      gate={}, tools=TOOLS, limit=600)
def clients(run):
    exports = Exports(run)
    tcp, local, address = exports.tcp, exports.local, exports.gateway.nbd
    info = output("nbdinfo", tcp)
    for line in ("newstyle-fixed without TLS, using structured packets", f"export-size: {SIZE}", "base:allocation", "can_flush: true",
                 "can_fua: true", "can_trim: true", "can_zero: true", "can_multi_conn: true", "is_read_only: false"):
        if line not in info:
            raise Failed(f'nbdinfo does not print "{line}": {info}')
    ok("nbdinfo lists the features of the export")
    for name in ("constant", "disk"):
        expect(f'export="{name}"', "nbdinfo", "--list", f"nbd://{address}")
    expect("is_read_only: true", "nbdinfo", f"nbd://{address}/constant")
    refuse("nobody|requested export|No such", "nbdinfo", f"nbd://{address}/nobody")
    refuse(".", *qemu_io(f"nbd://{address}/constant", "write 0 4k", options=("-f", "raw")))

    source, back = run.noise("source.img", MIB), run.folder / "back.img"
    many = ("--connections=4", "--requests=64")
    output("nbdcopy", *many, source, tcp)
    output("nbdcopy", *many, tcp, back)
    same("nbdcopy over TCP, to the export and back", source, back)
    output("nbdcopy", local, back)
    same("nbdcopy over the Unix socket", source, back)
    compare = ("qemu-img", "compare", "-f", "raw", "-F", "raw")
    expect("Images are identical", *compare, source, tcp)
    # iSCSI and NBD show the same volume.
    expect("Images are identical", *compare, exports.gateway.url(), local)

    expect("read 4194304/4194304", *qemu_io(tcp, *ROUND_TRIP))
    refuse("verification failed", *qemu_io(tcp, "read -P 9 8M 64k", options=("-f", "raw")))
    output("qemu-img", "convert", "-n", "-f", "raw", "-O", "raw", "-t", "none", source, tcp)
    expect("Images are identical", *compare, source, tcp)

    output(*qemu_io(tcp, f"discard 0 {MIB}M", "write -P 3 16M 1M", options=("-f", "raw")))
    expect(" 0 +16777216 +3 +hole,zero", "nbdinfo", "--map", tcp)
    expect(" 16777216 +1048576 +0 +(data|allocated)", "nbdinfo", "--map", tcp)
    expect(f" 17825792 +{(MIB - 17) << 20} +3 +hole,zero", "nbdinfo", "--map", local)

    for uri, what in ((tcp, "TCP"), (local, "the Unix socket")):
        fio.verified(run, uri, f"64 requests in flight on each of 4 connections over {what}", bsrange="4k-64k", size="32m",
                     offset_increment="32m", numjobs=4, iodepth=64, group_reporting=True)
    exports.gateway.stop()


def same(what, one, other):
    if not same_files(one, other):
        raise Failed(f"{what}: the copy differs")
    other.unlink()
    ok(what)


@case("nbd.malformed", "clients that violate the protocol are refused without an effect on other clients", gate={})
def malformed(run):
    exports = Exports(run)
    exports.malformed(WRITABLE)
    exports.malformed(READ_ONLY, "constant")
    exports.gateway.stop()


@case("nbd.crash", "a crash loses no data that was flushed over NBD", gate={}, tools=("qemu-io",))
def crash(run):
    exports = Exports(run)
    expect("wrote", *qemu_io(exports.tcp, "write -P 0x77 32M 4M", "flush"))
    exports.gateway.kill()
    exports.gateway.start()
    expect("read 4194304", *qemu_io(exports.local, "read -P 0x77 32M 4M", options=("-f", "raw")))
    exports.gateway.stop()


@case("nbd.resize", "a volume grows without a restart", gate={}, tools=("nbdinfo", "qemu-io"))
def resize(run):
    exports = Exports(run)
    larger = (MIB + 64) << 20
    exports.gateway.config.change("volume", "disk", size=f"{MIB + 64}MiB")
    exports.gateway.reload()
    until(lambda: output("nbdinfo", "--size", exports.tcp).strip() == str(larger), "the export has the new size", 30, 0.1)
    last = larger - (1 << 20)
    expect("read 65536/65536", *qemu_io(exports.tcp, f"write -P 9 {last} 64k", f"read -P 9 {last} 64k"))
    exports.gateway.stop()


class Authorities:
    """A CA for server and clients, another CA that is not trusted, and a folder of certificates per client."""

    def __init__(self, run):
        self.folder = {name: run.fresh(name) for name in ("tls", "other", "anonymous", "known", "untrusting", "stranger")}
        for name in ("tls", "other"):
            output("openssl", "req", "-x509", *KEY, "-days", "2", "-subj", f"/CN={name}", "-addext", "basicConstraints=critical,CA:TRUE",
                   "-keyout", self.at(name, "ca-key.pem"), "-out", self.at(name, "ca-cert.pem"))
        self.sign("tls", "server", "tls", "subjectAltName=DNS:localhost,IP:127.0.0.1")
        for name, trusts in (("anonymous", "tls"), ("known", "tls"), ("stranger", "tls"), ("untrusting", "other")):
            self.at(name, "ca-cert.pem").write_bytes(self.at(trusts, "ca-cert.pem").read_bytes())
        self.sign("known", "client", "tls", "extendedKeyUsage=clientAuth")
        self.sign("stranger", "client", "other", "extendedKeyUsage=clientAuth")

    def at(self, folder, file):
        return self.folder[folder] / file

    def sign(self, folder, name, authority, extension):
        key, request, extensions = (self.at(folder, f"{name}{end}") for end in ("-key.pem", ".csr", ".extensions"))
        extensions.write_text(f"basicConstraints=CA:FALSE\n{extension}\n")
        output("openssl", "req", *KEY, "-subj", f"/CN={name}", "-keyout", key, "-out", request)
        output("openssl", "x509", "-req", "-in", request, "-CA", self.at(authority, "ca-cert.pem"), "-CAkey",
               self.at(authority, "ca-key.pem"), "-CAcreateserial", "-days", "2", "-extfile", extensions,
               "-out", self.at(folder, f"{name}-cert.pem"))

    def server(self, mode, **keys):
        return {"tls": mode, "certificate": self.at("tls", "server-cert.pem"), "key": self.at("tls", "server-key.pem"), **keys}

    def uri(self, exports, client):
        return f"nbds://{exports.gateway.nbd}/disk?tls-certificates={self.folder[client]}"


KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")


@case("nbd.tls", "TLS is offered, required, and asks for client certificates, as configured", gate={}, tools=("openssl", *TOOLS))
def tls(run):
    authorities = Authorities(run)
    exports = Exports(run, **authorities.server("allowed"))
    uri = authorities.uri(exports, "anonymous")
    expect("newstyle-fixed with TLS", "nbdinfo", uri)
    expect("newstyle-fixed without TLS", "nbdinfo", exports.tcp)
    refuse("certificate|verif|TLS|handshake", "nbdinfo", authorities.uri(exports, "untrusting"))
    source, back, many = run.noise("source.img", MIB), run.folder / "back.img", ("--connections=4", "--requests=64")
    output("nbdcopy", *many, source, uri)
    output("nbdcopy", *many, uri, back)
    same("nbdcopy over TLS, to the export and back", source, back)
    # fio has no option for certificates. QEMU also checks the server's name.
    host, port = address_of(exports.gateway.nbd)

    def secured(name, *commands):
        return qemu_io(f"driver=nbd,host={host},port={port},export=disk,tls-creds=tls,tls-hostname={name}", *commands, options=(
            "-t", "none", "--object", f"tls-creds-x509,id=tls,endpoint=client,dir={authorities.folder['anonymous']}", "--image-opts"))

    expect("read 4194304/4194304", *secured(
        "localhost", "write -P 5 8M 4M", "aio_write -P 6 2M 1M", "aio_write -P 7 3M 1M", "aio_flush", "read -P 6 2M 1M",
        "read -P 7 3M 1M", "read -P 5 8M 4M"))
    refuse("[Cc]ertificate does not match", *secured("elsewhere", "read 0 4k"))
    exports.gateway.stop()

    exports = Exports(run, **authorities.server("required"))
    expect("newstyle-fixed with TLS", "nbdinfo", authorities.uri(exports, "anonymous"))
    refuse("TLS|encrypt|required|denied|disconnect", "nbdinfo", exports.tcp)
    exports.malformed(BEFORE_TLS, neighbour=False)
    exports.gateway.stop()

    exports = Exports(run, **authorities.server("required", client_ca=authorities.at("tls", "ca-cert.pem")))
    expect("newstyle-fixed with TLS", "nbdinfo", authorities.uri(exports, "known"))
    for client in ("anonymous", "stranger"):
        refuse(".", "nbdinfo", authorities.uri(exports, client))
    exports.gateway.stop()
