import shutil
from pathlib import Path
from tempfile import mkdtemp

import pytest


@pytest.fixture
def memory(tmp_path):
    """A folder in memory, where there is one: files are made there by the thousand."""
    fast = Path("/dev/shm")
    folder = Path(mkdtemp(dir=fast if fast.is_dir() else tmp_path))
    yield folder
    shutil.rmtree(folder)
