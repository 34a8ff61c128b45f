"""Bugs planted in the training loop and the optimisers."""

from tests.zoo.bug import bugs

RESUME = "system/test_resume.py::test_a_stopped_run_resumes_exactly"
PACE = "unit/train/test_pace.py"

TRAINING = [
    *bugs(
        "train/step.py",
        (
            "a mean of means",
            "batch.to(self.device)) / count",
            "batch.to(self.device)) / (2 * batch.y.numel())",
            "unit/train/test_loop.py::test_micro_batches_are_one_batch",
        ),
    ),
    *bugs(
        "train/progress.py",
        ("a resume forgets the optimiser", 'optimiser.load_state_dict(parts["optim"])', "pass", RESUME),
        ("a resume forgets the random state", 'torch.set_rng_state(parts["rng"]["cpu"])', "pass", RESUME),
        ("a resume begins the data anew", 'loader.restore(meta["loader"])', "pass", RESUME),
    ),
    *bugs(
        "train/pace.py",
        ("costly evaluations are as many", "if dear else EVALUATIONS", "if False else EVALUATIONS", PACE),
        ("the first plan stands", "at.step >= at.steps:", "False:", PACE),
        ("a resumed run has all its minutes again", "time.monotonic() - at.seconds", "time.monotonic()", PACE),
    ),
    *bugs(
        "train/muon.py",
        (
            "Muon without momentum",
            "momentum.lerp_(grad, (1 - self.momentum) * moves)",
            "momentum.copy_(grad)",
            "unit/train/test_optim.py::test_muon_is_torchs_up_to_its_half_precision",
        ),
        (
            "fused maps are orthogonalised as one",
            "return list(parts) if sum(parts) == p.size(0) else [p.size(0)]",
            "return [p.size(0)]",
            "unit/train/test_optim.py",
        ),
    ),
    *bugs(
        "train/optim.py",
        (
            "gradients are never cleared",
            "self.step(bad)\n        self.zero_grad()",
            "self.step(bad)",
            "unit/train/test_loop.py",
        ),
        (
            "gradients are never clipped",
            "nn.utils.clip_grads_with_norm_(self.parameters, self.optim.clip, norm)",
            "pass",
            "unit/train/test_optim.py::test_adam_is_torchs_step_by_step",
        ),
    ),
    *bugs(
        "train/schedule.py",
        ("warm-up of another length", "step * warmup**-1.5", "step * warmup**-1.4", "unit/train/test_schedule.py"),
    ),
]
