"""
Decide which paths are on network file systems.

There, locks depend on server and mount options, and a process that has mapped a
file dies if another host replaces the file.

Invariant: reads the kernel's mount table and a setting, and never asks the
server, which may not answer.
"""

from __future__ import annotations

import os
import re

from .. import _settings

#: Types as the kernel names them.
NETWORK_FILE_SYSTEMS = frozenset(
    ["nfs", "nfs4", "cifs", "smb3", "smbfs", "ncpfs", "afs", "coda"]
    + ["ceph", "lustre", "gpfs", "beegfs", "glusterfs", "orangefs", "pvfs2", "panfs"]
    + [
        f"fuse.{name}"
        for name in ("sshfs", "glusterfs", "ceph", "s3fs", "gcsfuse", "rclone", "juicefs", "mount-s3", "blobfuse2")
    ]
)


def network(path: str | os.PathLike[str]) -> str:
    """
    The type of network file system that a path is on; empty if it is on none of the known ones.
    """
    real = os.path.realpath(path)
    for folder in os.environ.get(_settings.NETWORK_PATHS, "").split(os.pathsep):
        if folder and (real + os.sep).startswith(os.path.realpath(folder).rstrip(os.sep) + os.sep):
            return f"a folder in {_settings.NETWORK_PATHS}"
    kind = file_system_of(real, _mount_table())
    return kind if kind in NETWORK_FILE_SYSTEMS else ""


def _mount_table() -> str:
    try:
        with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as table:
            return table.read()
    except OSError:
        return ""


def file_system_of(path: str, mount_table: str) -> str:
    """
    Type of the file system that a resolved path is on, according to *mount_table*; empty if unknown.

    *mount_table* is the text of `/proc/self/mountinfo`.
    """
    best, kind = "", ""
    for line in mount_table.splitlines():
        mount, _, source = line.partition(" - ")
        fields = mount.split(" ")
        if len(fields) < 5 or not source:
            continue
        point = re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), fields[4])
        inside = path == point or path.startswith(point.rstrip("/") + "/")
        # Of several mounts on one folder the last is visible.
        if inside and len(point) >= len(best):
            best, kind = point, source.split(" ")[0]
    return kind
