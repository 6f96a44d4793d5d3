"""A gateway with a write-back log in front of a slow upstream: tgtd behind a proxy."""

from .config import Config
from .gateway import Gateway
from .proxy import Proxy
from .targets import Tgtd


class WriteBack:
    """The volume `disk` with the log `log`; `image` is the target's file."""

    def __init__(self, run, mib, upstream=None, **volume):
        self.image, self.log = run.image("disk.img", mib), run.folder / "disk.log"
        self.target = Tgtd(run, self.image, thin=True)
        self.proxy = Proxy.start(run, self.target.portals[0])
        config = Config().nbd().section("cache", size="4MiB")
        config.add("upstream", name="array", target=self.target.name, lun=self.target.lun, portals=self.proxy.portals,
                   **(upstream or {}))
        config.volume(upstream="array", state=run.folder / "disk.state", log=self.log, **volume).target()
        self.gateway = Gateway(run, config)
