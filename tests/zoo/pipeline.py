"""What may go wrong around a model: batches, losses, search, files."""

from tests.zoo.bug import bugs

CONTRACT = "contract/test_translators.py"
MARIAN = "reference/test_marian.py"
BY_HAND = f"{CONTRACT}::test_the_loss_is_the_one_worked_out_by_hand"
CONSISTENT = f"{CONTRACT}::test_consistency_loss_is_plain_when_both_passes_agree"
TAUGHT = "unit/objectives/test_regularised.py"
SAMPLING, SEARCH = "unit/generate/test_sampling.py", "unit/generate/test_search.py"
ENUMERATION = f"{SEARCH}::test_a_wide_beam_finds_what_enumeration_finds"

PIPELINE = [
    *bugs(
        "data.batch",
        (
            "targets are not shifted",
            "Pairs.inputs",
            "return torch.cat([self.target.new_full((len(self), 1), self.start), self.target[:, :-1]], 1)",
            "return self.target",
            BY_HAND,
        ),
        (
            "padding is counted in the loss",
            "Pairs.chosen",
            "np.arange(self.target.size(1)) < self.host_lengths[:, 1:]",
            "np.arange(self.target.size(1)) < 0 * self.host_lengths[:, 1:] + self.target.size(1)",
            BY_HAND,
        ),
        (
            "padding is counted in the denominator",
            "Pairs.targets_count",
            "return int(self.host_lengths[:, 1].sum())",
            "return self.target.numel()",
            BY_HAND,
        ),
    ),
    *bugs(
        "data.loader",
        (
            "a batch is left out after a resume",
            "Loader.restore",
            'self._begin(state["epoch"], state["position"])',
            'self._begin(state["epoch"], state["position"] + 1)',
            "unit/data/test_loader.py",
        ),
        (
            "every epoch has the same order",
            "Loader._begin",
            "default_rng((self.seed, epoch))",
            "default_rng((self.seed, 0))",
            "unit/data/test_loader.py",
        ),
        (
            "a budget of less than a text gives empty batches",
            "TokenBudget.batches",
            "few = min(len(chunk), max(1, round(len(chunk) * self.sorted_together / size)))",
            "few = max(1, round(len(chunk) * self.sorted_together / size))",
            "unit/data/test_loader.py",
        ),
    ),
    *bugs(
        "objectives.losses",
        (
            "smoothing is spread over all words but the right one, in the gradient only",
            "_loss_and_error",
            "error[:, :vocab] -= smoothing / vocab",
            "error[:, :vocab] -= smoothing / (vocab - 1)",
            "reference/test_torch.py",
        ),
        (
            "smoothing does not take from the right word",
            "_loss_and_error",
            "loss = log_sum - (1 - smoothing) * logits.gather(1, target)",
            "loss = log_sum - logits.gather(1, target)",
            "reference/test_torch.py",
        ),
        (
            "rows that are no words take part in the softmax",
            "_loss_and_error",
            "logits[:, vocab:] = -torch.inf",
            "pass",
            "unit/objectives/test_losses.py",
        ),
        (
            "what does not count is learned",
            "_loss_and_error",
            "(error * real).to(dtype)",
            "error.to(dtype)",
            "unit/objectives/test_losses.py",
        ),
    ),
    *bugs(
        "objectives.losses",
        (
            "every number of rows is compiled anew",
            "in_chunks",
            "[(0, x)] if rows >= x.size(0) else ",
            "",
            "unit/objectives/test_base.py",
        ),
    ),
    *bugs(
        "nn.masks",
        (
            "the causal mask breaks a compiled graph",
            "Causal.sdpa",
            'return {"is_causal": True} if self.size > 1 else {}',
            'return {"is_causal": bool(self.size > 1)}',
            "unit/objectives/test_base.py",
        ),
    ),
    *bugs(
        "objectives.regularised",
        (
            "R-Drop without its divergence",
            "Regularised.device_loss",
            "* (p - q)).sum(-1)",
            "* (p - q)).sum(-1) * 0",
            CONSISTENT,
        ),
        (
            "both losses of R-Drop are counted in full",
            "Regularised.device_loss",
            "return loss / passes",
            "return loss",
            CONSISTENT,
        ),
        (
            "teachers are summed instead of averaged",
            "Regularised.taught",
            "return mean / len(self.teachers)",
            "return mean",
            TAUGHT,
        ),
        (
            "targets that do not count are learned from teachers",
            "Regularised.device_loss",
            "self.share * (apart * counts).sum()",
            "self.share * apart.sum()",
            TAUGHT,
        ),
    ),
    *bugs(
        "generate.sampling",
        (
            "top-k keeps one too few",
            "top_k",
            "logits.topk(k, -1)",
            "logits.topk(max(k - 1, 1), -1)",
            f"{SAMPLING}::test_top_k_by_hand",
        ),
        (
            "top-p leaves out the word that reaches p",
            "top_p",
            "before >= p",
            "before + probabilities >= p",
            f"{SAMPLING}::test_rows_are_filtered_each_by_itself",
        ),
        (
            "one draw for the whole batch",
            "row_uniforms",
            "seed * 1_000_003 + row",
            "seed * 1_000_003",
            f"{SAMPLING}::test_frequencies_are_the_probabilities",
        ),
    ),
    *bugs(
        "generate.search",
        (
            "temperature is forgotten",
            "sample",
            "top_k(logits / temperature, k)",
            "top_k(logits, k)",
            "contract/test_translator.py::test_words_are_drawn_as_often_as_a_colder_model_says",
        ),
        (
            "the length penalty is inverted",
            "Beam.file",
            "sums / self.search.penalty(length)",
            "sums * self.search.penalty(length)",
            ENUMERATION,
        ),
        (
            "hypotheses go on from other parents",
            "Beam.advance",
            "return parents.gather(1, go)",
            "return parents[:, :N]",
            ENUMERATION,
        ),
        (
            "what has ended goes on",
            "Beam.advance",
            "alive = torch.where(ends, NEVER, best)",
            "alive = best",
            ENUMERATION,
        ),
        (
            "a translation may end anywhere in the candidates",
            "Beam.advance",
            "ends & (rank < N)",
            "ends & (rank < 2 * N)",
            f"{SEARCH}::test_a_narrow_beam_is_the_plain_beam_search",
        ),
        (
            "sentences that stay take the limits of those that leave",
            "Beam.select",
            '"limits", "ids"',
            '"ids"',
            f"{SEARCH}::test_every_sentence_has_its_own_limit_and_ends_in_it",
        ),
    ),
    *bugs(
        "predictors.translator",
        (
            "the translator calls every batch unpadded",
            "Translator.batches",
            "ragged = len(ids[rows[0]]) != len(ids[rows[-1]])",
            "ragged = False",
            f"{MARIAN}::test_greedy_equals_generate",
        ),
        (
            "a given translation is scored with its padding",
            "Translator.score",
            "right.masked_fill(~real, 0.0)",
            "right",
            "contract/test_translator.py",
        ),
        (
            "translations come back in the order of their length",
            "Translator.batches",
            "yield rows, source",
            "yield list(range(start, start + len(rows))), source",
            "contract/test_translator.py",
        ),
    ),
    *bugs(
        "checkpoint",
        (
            "a file is written in its place",
            "write_atomic",
            'path.with_name(f".{path.name}{UNFINISHED}")',
            "path",
            "unit/test_checkpoint.py",
        ),
    ),
    *bugs(
        "run_folder",
        (
            "the weights are published before the words",
            "publish",
            "key=lambda p: (p == draft / last, p)",
            "key=lambda p: p",
            "unit/test_run_folder.py::test_kill_at_any_write_leaves_no_half_written_model",
        ),
        (
            "a file of the user's is claimed",
            "claim",
            "if theirs := [name for name in new if os.path.lexists(folder / name)]:",
            "if theirs := []:",
            "unit/test_run_folder.py::test_a_file_put_there_meanwhile_is_not_replaced",
        ),
    ),
]
