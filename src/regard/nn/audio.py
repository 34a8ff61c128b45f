"""From a spectrogram to a sequence: the convolutions in front of an audio encoder."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class AudioStem(nn.Module):
    """Radford et al. 2022, figure 1: two convolutions of width 3, the second with stride 2, with GELU."""

    def __init__(self, mels: int, width: int):
        super().__init__()
        self.conv1 = nn.Conv1d(mels, width, 3, padding=1)
        self.conv2 = nn.Conv1d(width, width, 3, stride=2, padding=1)

    def forward(self, frames: Tensor, lengths: Tensor | None = None) -> Tensor:
        """B mels F -> B ⌈F/2⌉ D. Of a padded clip, the first `lengths[b]` frames are real; the rest are zero."""
        x = F.gelu(self.conv1(frames))  # B D F
        if lengths is not None:  # the bias made the padding non-zero
            x = x * (torch.arange(x.size(2), device=x.device) < lengths[:, None])[:, None]
        return F.gelu(self.conv2(x)).mT
