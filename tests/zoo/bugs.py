"""The planted bugs: an edit of one file each, and the tests that must notice. Modelled on mistakes people make."""

from tests.zoo.audio import AUDIO
from tests.zoo.encoder import ENCODER
from tests.zoo.images import IMAGES
from tests.zoo.labels import LABELS
from tests.zoo.language import LANGUAGE
from tests.zoo.masked import PRETRAINING
from tests.zoo.pipeline import PIPELINE
from tests.zoo.series import SERIES
from tests.zoo.spine import SPINE
from tests.zoo.studio import INSIDE
from tests.zoo.training import TRAINING

BUGS = [*SPINE, *PIPELINE, *IMAGES, *LABELS, *LANGUAGE, *PRETRAINING, *ENCODER, *SERIES, *INSIDE, *AUDIO, *TRAINING]
