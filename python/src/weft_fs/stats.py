"""The cluster and the state of its servers, as objects."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Target:
    """A target of the cluster file."""

    id: int
    class_name: str
    server: str


@dataclass(frozen=True)
class Server:
    """A server of the cluster file."""

    name: str
    addresses: tuple[str, ...]
    has_metadata: bool
    targets: tuple[Target, ...]


@dataclass(frozen=True)
class ClusterInfo:
    """The cluster file."""

    name: str
    file: str
    mount: str
    is_embedded: bool
    emulated: tuple[str, ...]
    """A phrase for each emulated device: its figures are not those of this hardware."""
    servers: tuple[Server, ...]

    @property
    def targets(self) -> tuple[Target, ...]:
        """Targets of all servers."""
        return tuple(target for server in self.servers for target in server.targets)


@dataclass(frozen=True)
class SsdStatus:
    """SSD beside the disk of a target. Counters start at zero with the server."""

    policy: str
    capacity: int
    dirty: int
    lost: int
    read_hits: int
    read_partial_hits: int
    read_misses: int
    bytes_read: int
    bytes_written: int
    bytes_written_back: int
    failed: str | None
    raw: Mapping[str, Any] = field(repr=False)
    """All fields, as `weft status --json` shows them."""


@dataclass(frozen=True)
class TargetStatus:
    """State of a target. Counters start at zero with the server."""

    id: int
    class_name: str
    server: str
    state: str
    """State on record, such as "active"; that of a refused target; "down" if its server is."""
    total: int
    free: int
    bytes_read: int
    """Bytes read by messages, without those of programs on the same host through leased descriptors."""
    bytes_written: int
    requests: int
    queue: int
    """Requests that run or wait now."""
    leases: int
    damaged: int
    """Blocks that did not match their checksums."""
    ssd: SsdStatus | None
    reason: str | None
    """Reason for which the target is not used."""
    raw: Mapping[str, Any] = field(repr=False)
    """All fields, as `weft status --json` shows them."""

    @property
    def is_up(self) -> bool:
        """Whether the target serves requests."""
        return self.reason is None


@dataclass(frozen=True)
class MetadataStatus:
    """State of the metadata service. Counters start at zero with the server."""

    inodes: int
    sessions: int
    opens: int
    locks: int
    requests: int
    mutations: int
    commits: int
    total: int
    free: int
    damaged_blocks: int
    raw: Mapping[str, Any] = field(repr=False)
    """All fields, as `weft status --json` shows them."""


@dataclass(frozen=True)
class ServerStatus:
    """State of a server."""

    name: str
    is_up: bool
    reason: str | None
    """Reason for which the server is shown as down."""
    version: str | None
    pid: int | None
    uptime: float
    """Seconds since the start."""
    connections: int
    memory: int
    """Resident memory in bytes."""
    targets: tuple[TargetStatus, ...]
    metadata: MetadataStatus | None
    raw: Mapping[str, Any] = field(repr=False)
    """All fields, as `weft status --json` shows them."""


@dataclass(frozen=True)
class ClusterStatus:
    """State of all servers at one time."""

    servers: tuple[ServerStatus, ...]

    @property
    def targets(self) -> tuple[TargetStatus, ...]:
        """Targets of all servers."""
        return tuple(target for server in self.servers for target in server.targets)

    @property
    def is_healthy(self) -> bool:
        """Whether all servers answered and use all of their targets, as the exit code of `weft status` says."""
        return all(server.is_up for server in self.servers) and all(target.is_up for target in self.targets)


def cluster_from(found: Mapping[str, Any]) -> ClusterInfo:
    """Return the description of the library as an object."""
    return ClusterInfo(
        name=found["cluster"],
        file=found["file"],
        mount=found["mount"],
        is_embedded=found["embedded"],
        emulated=tuple(found["emulated"]),
        servers=tuple(
            Server(
                name=server["name"],
                addresses=tuple(server["addresses"]),
                has_metadata=server["metadata"],
                targets=tuple(
                    Target(target["id"], target["class"], server["name"]) for target in server["targets"]
                ),
            )
            for server in found["servers"]
        ),
    )


def status_from(answers: list[tuple[Server, Mapping[str, Any] | str]]) -> ClusterStatus:
    """Return the answer of each server, or the reason why it has none, as objects."""
    states: dict[int, str] = {}
    for _, answer in answers:
        if not isinstance(answer, str) and answer["metadata"]:
            for record in answer["metadata"]["targets"]:
                states[record["target"]] = _word(record["state"])
    return ClusterStatus(tuple(_server(server, answer, states) for server, answer in answers))


def _word(state: Any) -> str:
    """Return the name of an enum's variant, with or without fields."""
    name = state if isinstance(state, str) else next(iter(state))
    return str(name).lower()


def _server(server: Server, answer: Mapping[str, Any] | str, states: Mapping[int, str]) -> ServerStatus:
    if isinstance(answer, str):
        return ServerStatus(
            name=server.name,
            is_up=False,
            reason=answer,
            version=None,
            pid=None,
            uptime=0.0,
            connections=0,
            memory=0,
            targets=tuple(_down(target, answer) for target in server.targets),
            metadata=None,
            raw={},
        )
    metadata = answer["metadata"]
    return ServerStatus(
        name=server.name,
        is_up=True,
        reason=None,
        version=answer["version"],
        pid=answer["pid"],
        uptime=answer["uptime"] / 1e9,
        connections=answer["connections"],
        memory=answer["memory"],
        targets=tuple(_target(server.name, target, states) for target in answer["targets"]),
        metadata=_metadata(metadata) if metadata else None,
        raw=answer,
    )


def _down(target: Target, reason: str) -> TargetStatus:
    return TargetStatus(
        id=target.id,
        class_name=target.class_name,
        server=target.server,
        state="down",
        total=0,
        free=0,
        bytes_read=0,
        bytes_written=0,
        requests=0,
        queue=0,
        leases=0,
        damaged=0,
        ssd=None,
        reason=reason,
        raw={},
    )


def _target(server: str, found: Mapping[str, Any], states: Mapping[int, str]) -> TargetStatus:
    refused, ssd = found["refused"], found["ssd"]
    return TargetStatus(
        id=found["target"],
        class_name=found["class"],
        server=server,
        state=refused["state"] if refused else states.get(found["target"], "unknown"),
        total=found["total"],
        free=found["free"],
        bytes_read=found["bytes_read"],
        bytes_written=found["bytes_written"],
        requests=found["requests"],
        queue=found["queue"],
        leases=found["leases"],
        damaged=found["damaged"],
        ssd=_ssd(ssd) if ssd else None,
        reason=refused["reason"] if refused else None,
        raw=found,
    )


def _ssd(found: Mapping[str, Any]) -> SsdStatus:
    names = (
        "policy",
        "capacity",
        "dirty",
        "lost",
        "read_hits",
        "read_partial_hits",
        "read_misses",
        "bytes_read",
        "bytes_written",
        "bytes_written_back",
        "failed",
    )
    return SsdStatus(**{name: found[name] for name in names}, raw=found)


def _metadata(found: Mapping[str, Any]) -> MetadataStatus:
    names = (
        "inodes",
        "sessions",
        "opens",
        "locks",
        "requests",
        "mutations",
        "commits",
        "total",
        "free",
        "damaged_blocks",
    )
    return MetadataStatus(**{name: found[name] for name in names}, raw=found)
