"""Bugs planted in the training loop and the optimisers."""

from tests.zoo.bug import bugs

RESUME = "system/test_resume.py::test_a_stopped_run_resumes_exactly"
PACE = "unit/training/test_pace.py"

TRAINING = [
    *bugs(
        "training.step",
        (
            "a mean of means",
            "Stepper.share",
            "batch.to(self.device)) / count",
            "batch.to(self.device)) / (2 * batch.y.numel())",
            "unit/training/test_loop.py::test_micro_batches_are_one_batch",
        ),
    ),
    *bugs(
        "training.progress",
        (
            "a resume forgets the optimiser",
            "SavedState.restore",
            'self.optimiser.load_state_dict(parts["optim"])',
            "pass",
            RESUME,
        ),
        ("a resume forgets the random state", "SavedState.restore", "torch.set_rng_state(cpu)", "pass", RESUME),
        ("a resume begins the data anew", "SavedState.restore", 'self.loader.restore(meta["loader"])', "pass", RESUME),
    ),
    *bugs(
        "training.pace",
        (
            "costly evaluations are as many",
            "affordable",
            "if EVALUATIONS * share <= EVALUATION_SHARE:",
            "if True:",
            PACE,
        ),
        ("the first plan stands", "Pace.plan", "at.step >= at.steps:", "False:", PACE),
        (
            "a resumed run has all its minutes again",
            "Pace.__init__",
            "time.monotonic() - at.seconds",
            "time.monotonic()",
            PACE,
        ),
    ),
    *bugs(
        "training.muon",
        (
            "Muon without momentum",
            "Muon.step",
            "momentum.lerp_(grad, (1 - self.momentum) * moves)",
            "momentum.copy_(grad)",
            "unit/training/test_optim.py::test_muon_is_torchs_up_to_its_half_precision",
        ),
        (
            "fused maps are orthogonalised as one",
            "_parts",
            "return list(parts) if sum(parts) == p.size(0) else [p.size(0)]",
            "return [p.size(0)]",
            "unit/training/test_optim.py",
        ),
    ),
    *bugs(
        "training.optim",
        (
            "gradients are never cleared",
            "Optimiser.update",
            "self.step(bad)\n        self.zero_grad()",
            "self.step(bad)",
            "unit/training/test_loop.py",
        ),
        (
            "gradients are never clipped",
            "Optimiser.clip",
            "nn.utils.clip_grads_with_norm_(self.parameters, self.optim.clip, norm)",
            "pass",
            "unit/training/test_optim.py::test_adam_is_torchs_step_by_step",
        ),
    ),
    *bugs(
        "training.schedule",
        (
            "warm-up of another length",
            "lr_at",
            "step * warmup**-1.5",
            "step * warmup**-1.4",
            "unit/training/test_schedule.py",
        ),
    ),
]
