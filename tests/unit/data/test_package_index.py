"""Which package index is asked."""

from regard.data import package_index


def test_pips_own_configuration_is_asked(tmp_path, monkeypatch):
    (tmp_path / "pip.conf").write_text("[global]\nindex-url = https://index.example/simple\ncert = /some/where.pem\n")
    monkeypatch.setenv("PIP_CONFIG_FILE", str(tmp_path / "pip.conf"))
    monkeypatch.delenv("PIP_INDEX_URL", raising=False)
    monkeypatch.delenv("PIP_CERT", raising=False)
    assert package_index.index_settings() == ("https://index.example/simple", "/some/where.pem")
    monkeypatch.setenv("PIP_INDEX_URL", "https://other.example/simple")
    assert package_index.index_settings()[0] == "https://other.example/simple"
