"""Builds the gateway's configuration and the simulator's plans, in TOML."""

import json

from .case import TARGET


class Config:
    """Sections and lists of tables, in the order in which they were added."""

    def __init__(self, **iscsi):
        self.scalars, self.tables, self.sections = {}, [], {"iscsi": {"listen": ["127.0.0.1:0"], **iscsi}}

    @classmethod
    def plan(cls):
        """For `weir sim`."""
        self = cls()
        self.sections = {}
        return self

    def section(self, name, **keys):
        self.sections.setdefault(name, {}).update(keys)
        return self

    def add(self, table, **keys):
        self.tables.append((table, keys))
        return self

    def volume(self, name="disk", **keys):
        return self.add("volume", name=name, **keys)

    def target(self, *volumes, name=TARGET, **keys):
        """The LUNs are the volumes, numbered from 0; `disk` by default."""
        return self.add("target", name=name, luns=dict(enumerate(volumes or ["disk"])), **keys)

    def nbd(self, *volumes, **keys):
        """Exports the volumes by their names; over TCP unless `keys` says otherwise."""
        keys = keys or {"listen": ["127.0.0.1:0"]}
        return self.section("nbd", **keys, exports={name: name for name in volumes or ["disk"]})

    def account(self, name, **keys):
        return self.add("account", name=name, **keys)

    def change(self, table, name, **keys):
        """Changes keys of a table that was added before."""
        next(have for kind, have in self.tables if kind == table and have["name"] == name).update(keys)

    def text(self):
        lines = [assignment(*one) for one in self.scalars.items()]
        for name, keys in self.sections.items():
            lines += [f"[{name}]"] + [assignment(*one) for one in keys.items()]
        for name, keys in self.tables:
            lines += [f"[[{name}]]"] + [assignment(*one) for one in keys.items()]
        return "\n".join(lines) + "\n"


def assignment(key, value):
    return f"{key} = {toml(value)}"


def toml(value):
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{quoted(key)} = {toml(one)}" for key, one in value.items()) + " }"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(toml, value)) + "]"
    if isinstance(value, (bool, int, float)):
        return json.dumps(value)
    return json.dumps(str(value))


def quoted(key):
    text = str(key)
    return text if text.replace("_", "").replace("-", "").isalnum() else json.dumps(text)
