"""
The file system of a path, according to the mount table.
"""

from __future__ import annotations

import pytest

from rust_ext_loader.files._file_systems import file_system_of

MOUNTS = """\
22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
30 22 0:40 / /home rw,relatime shared:2 master:3 - nfs4 server:/home rw,vers=4.2
31 30 8:2 / /home/ann/.cache rw - xfs /dev/sdb1 rw
32 22 0:41 / /mnt/with\\040space rw - cifs //server/share rw
33 22 0:42 / /twice rw - nfs server:/a rw
34 33 0:43 / /twice rw - tmpfs tmpfs rw
not a mount
"""


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        pytest.param("/var/x", "ext4", id="the root"),
        pytest.param("/home/ann/x", "nfs4", id="a mount"),
        pytest.param("/home", "nfs4", id="the mount itself"),
        pytest.param("/homework", "ext4", id="a name with the same prefix"),
        pytest.param("/home/ann/.cache/x", "xfs", id="a mount in a mount"),
        pytest.param("/mnt/with space/x", "cifs", id="escaped blanks"),
        pytest.param("/twice/x", "tmpfs", id="the last mount hides the first"),
    ],
)
def test_the_file_system_of_a_path(path: str, expected: str) -> None:
    """
    The innermost mount counts, and of several mounts on one folder the last.
    """
    assert file_system_of(path, MOUNTS) == expected
    assert file_system_of(path, "") == ""
