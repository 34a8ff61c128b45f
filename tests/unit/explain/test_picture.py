"""Names of pictures, checked before any work."""

import pytest

from regard.errors import ConfigError
from regard.explain.picture import check_picture


@pytest.mark.parametrize(("name", "better"), [("a.jpg", "a.png"), ("a", "a.png"), (".", "picture.png")])
def test_a_name_without_a_known_ending_is_refused_with_another(name, better):
    with pytest.raises(ConfigError, match=rf"a picture's name must end in \.png, \.svg, \.pdf; try {better}$"):
        check_picture(name)
