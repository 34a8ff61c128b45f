"""What may go wrong in the spine: attention, the translators, training, search."""

from tests.zoo.bug import bugs

CONTRACT = "contract/test_models.py"
MARIAN = "reference/test_marian.py"
LOGITS = f"{MARIAN}::test_transformers_loads_our_folder_with_equal_gradients"
PAST = f"{CONTRACT}::test_the_past_does_not_depend_on_the_future"
REACH = f"{CONTRACT}::test_every_position_depends_on_all_it_should"
PADDING = f"{CONTRACT}::test_rows_do_not_depend_on_padding_or_their_batch"
STEPS = f"{CONTRACT}::test_decoding_in_steps_equals_decoding_at_once"
LEAVING = f"{CONTRACT}::test_finished_sentences_leave_without_a_trace"
GRADIENTS = f"{CONTRACT}::test_every_parameter_gets_a_gradient"
STILL = f"{CONTRACT}::test_evaluation_is_still_and_training_is_not"
COUNT = f"{CONTRACT}::test_parameters_are_counted_by_the_papers_formula"
FIRST_LOSS = f"{CONTRACT}::test_the_first_loss_is_near_that_of_guessing"
BY_HAND = f"{CONTRACT}::test_the_loss_is_the_one_worked_out_by_hand"
CONSISTENT = f"{CONTRACT}::test_consistency_loss_is_plain_when_both_passes_agree"
SAMPLING, SEARCH = "unit/generate/test_sampling.py", "unit/generate/test_search.py"
ENUMERATION = f"{SEARCH}::test_a_wide_beam_finds_what_enumeration_finds"


SPINE = [
    *bugs(
        "nn/attention.py",
        (
            "plain scores are not scaled",
            "scores = q @ k.mT / math.sqrt(q.size(-1))",
            "scores = q @ k.mT",
            "unit/nn/test_masks.py",
        ),
        (
            "scores are scaled by d, not by its root",
            "mask.sdpa(q.dtype), dropout_p",
            "mask.sdpa(q.dtype), scale=1 / q.size(-1), dropout_p",
            LOGITS,
        ),
        (
            "heads are split without transposing",
            "x.unflatten(-1, (heads, -1)).transpose(1, 2)",
            "x.reshape(x.size(0), heads, x.size(1), -1)",
            LOGITS,
        ),
        (
            "heads are merged without transposing",
            "x.transpose(1, 2).flatten(2)",
            "x.reshape(x.size(0), x.size(2), -1)",
            LOGITS,
        ),
        (
            "q and k are swapped",
            "q, k, v = self.qkv(x)",
            "k, q, v = self.qkv(x)",
            LOGITS,
        ),
        (
            "memory's keys and values are swapped",
            "        return k, v\n",
            "        return v, k\n",
            LOGITS,
        ),
        (
            "what the decoder reads from the memory is detached",
            "merge_heads(fast_attention(q, *kv, mask))",
            "merge_heads(fast_attention(q, *kv, mask)).detach()",
            GRADIENTS,
        ),
        (
            "additive attention sees padding",
            "scores = scores.masked_fill(~mask, torch.finfo(scores.dtype).min)\n        weights",
            "scores = scores + 0\n        weights",
            PADDING,
        ),
        (
            "additive attention forgets tanh",
            "self.v(torch.tanh(q[:, :, None] + keys[:, None]))",
            "self.v(q[:, :, None] + keys[:, None])",
            "unit/nn/test_attention.py",
        ),
    ),
    *bugs(
        "nn/masks.py",
        (
            "the mask lets one future word through",
            'return {"is_causal": self.size > 1}',
            'return {"attn_mask": torch.ones(self.size, self.size, dtype=torch.bool, device=self.device).tril(1)}',
            PAST,
        ),
        ("there is no causal mask", 'return {"is_causal": self.size > 1}', 'return {"is_causal": False}', PAST),
        (
            "a word cannot see itself",
            'return {"is_causal": self.size > 1}',
            'return {"attn_mask": torch.ones(self.size, self.size, dtype=torch.bool, device=self.device).tril(-1)}',
            LOGITS,
        ),
        (
            "the drawn causal table is another one",
            "dtype=torch.bool, device=self.device).tril()",
            "dtype=torch.bool, device=self.device).tril(-1)",
            "unit/nn/test_masks.py",
        ),
        (
            "the padding mask is upside down",
            "(places < lengths[:, None])",
            "(places >= lengths[:, None])",
            PADDING,
        ),
        (
            "the mask of sentences that stay is that of the first ones",
            "return Lengths(self.lengths[rows], self.size)",
            "return Lengths(self.lengths[: len(rows)], self.size)",
            LEAVING,
        ),
    ),
    *bugs(
        "nn/blocks.py",
        (
            "the residual around the encoder's attention is lost",
            "add_norm(x, self.attention(x, mask), self.drop, self.norm1)",
            "self.norm1(self.drop(self.attention(x, mask)))",
            LOGITS,
        ),
        (
            "the residual around the decoder's feed-forward is lost",
            "add_norm(x, self.mlp(x), self.drop, self.norm3)",
            "self.norm3(self.drop(self.mlp(x)))",
            LOGITS,
        ),
        (
            "a norm is built and never used",
            "self.attention(self.norm1(x), mask), self.drop, self.norm2)\n        x = x + self.drop(self.mlp(y))",
            "self.attention(self.norm1(x), mask), self.drop, self.norm2)\n        x = x + self.drop(self.mlp(x))",
            GRADIENTS,
        ),
        ("the activation is forgotten", "self.down(self.act(self.up(x)))", "self.down(self.up(x))", LOGITS),
        ("norm runs over the batch", "super().forward(x)", "super().forward(x - x.mean(0))", PADDING),
    ),
    *bugs(
        "nn/cache.py",
        (
            "values are written to other slots than keys",
            "self.values.index_copy_(2, self.slots, v)",
            "self.values.index_copy_(2, self.slots.flip(0), v)",
            "unit/nn/test_cache.py",
        ),
        (
            "values stand in another order than keys",
            "[:, :, self.slots] = k, v",
            "[:, :, self.slots] = k, v.flip(2)",
            STEPS,
        ),
        ("the cache keeps the wrong rows", "= whole[rows, :, :stop]", "= whole[: len(rows), :, :stop]", LEAVING),
    ),
    *bugs(
        "nn/positions.py",
        (
            "waves of another length",
            "def waves(places: int, width: int, theta: float = 10000.0",
            "def waves(places: int, width: int, theta: float = 1000.0",
            "unit/nn/test_positions.py",
        ),
    ),
    *bugs(
        "nn/recurrent.py",
        (
            "the LSTM's gates are in another order",
            "(ai, af, ag, ao), (bi",
            "(af, ai, ag, ao), (bi",
            "unit/nn/test_recurrent.py",
        ),
        (
            "the GRU resets its input too",
            "torch.tanh(an + r * bn)",
            "torch.tanh(r * (an + bn))",
            "unit/nn/test_recurrent.py",
        ),
        ("the GRU's update gate is inverted", "(1 - z) * torch.tanh", "z * torch.tanh", "unit/nn/test_recurrent.py"),
    ),
    *bugs(
        "nn/init.py",
        (
            "embeddings start ten times too large",
            "std=module.embedding_dim**-0.5",
            "std=10 * module.embedding_dim**-0.5",
            FIRST_LOSS,
        ),
    ),
    *bugs(
        "models/transformer.py",
        (
            "the padding mask is forgotten",
            "Everything() if lengths is None else Lengths(lengths, source.size(1))",
            "Everything()",
            PADDING,
        ),
        ("positions start at one", "where = torch.arange(ids.size(1)", "where = 1 + torch.arange(ids.size(1)", LOGITS),
        (
            "positions are forgotten",
            "self.token(ids) * self.scale + place(where)",
            "self.token(ids) * self.scale",
            LOGITS,
        ),
        ("embeddings are not scaled", "self.scale = math.sqrt(c.width)", "self.scale = 1.0", LOGITS),
        (
            "a step stands one place too far",
            "self.decoder_place(state.time)",
            "self.decoder_place(state.time + 1)",
            STEPS,
        ),
        (
            "every step stands at the start",
            "self.decoder_place(state.time)",
            "self.decoder_place(0 * state.time)",
            STEPS,
        ),
        (
            "every step overwrites the first",
            "slots = slice(self.stop, self.stop + N)",
            "slots = slice(0, N)",
            STEPS,
        ),
        (
            "the table of ancestors is not re-ordered",
            "self.ancestors.gather(1, parents[:, :, None].expand(-1, -1, self.ancestors.size(2)))",
            "self.ancestors[:, :1].expand(-1, N, -1).clone()",
            STEPS,
        ),
        (
            "all decoder layers are one",
            "nn.ModuleList(DECODER_LAYERS[c.norm](*parts) for _ in range(c.decoder_layers))",
            "nn.ModuleList([DECODER_LAYERS[c.norm](*parts)] * c.decoder_layers)",
            COUNT,
        ),
        ("the last norm is forgotten", "return self.encoder_norm(x), mask", "return x, mask", GRADIENTS),
        (
            "dropout also at evaluation",
            "self.drop = nn.Dropout(c.dropout)",
            "self.drop = lambda x: nn.functional.dropout(x, c.dropout)",
            STILL,
        ),
    ),
    *bugs(
        "models/base.py",
        (
            "the head is not tied",
            "return self.token.weight  # V D",
            "return self.token.weight.detach()",
            LOGITS,
        ),
    ),
    *bugs(
        "models/seq2seq.py",
        (
            "reading backwards begins with the padding",
            "mirror = torch.where(where < sizes[:, None], sizes[:, None] - 1 - where, where)",
            "mirror = S - 1 - where",
            PADDING,
        ),
        (
            "the cell of another hypothesis goes on",
            "tuple(part.gather(1, parents[:, :, None].expand(-1, -1, part.size(2))) for part in self.cell)",
            "tuple(part[:, :1].expand(-1, parents.size(1), -1).clone() for part in self.cell)",
            STEPS,
        ),
    ),
    *bugs(
        "models/published/marian.py",
        (
            "q and k are swapped on the way out and in",
            '["self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"]',
            '["self_attn.k_proj", "self_attn.q_proj", "self_attn.v_proj"]',
            LOGITS,
        ),
    ),
    *bugs(
        "data/batch.py",
        (
            "targets are not shifted",
            "return torch.cat([self.target.new_full((len(self), 1), self.pad), self.target[:, :-1]], 1)",
            "return self.target",
            BY_HAND,
        ),
        (
            "padding is counted in the loss",
            "np.arange(self.target.size(1)) < self.host_lengths[:, 1:]",
            "np.arange(self.target.size(1)) < 0 * self.host_lengths[:, 1:] + self.target.size(1)",
            BY_HAND,
        ),
        (
            "padding is counted in the denominator",
            "return int(self.host_lengths[:, 1].sum())",
            "return self.target.numel()",
            BY_HAND,
        ),
    ),
    *bugs(
        "data/loader.py",
        (
            "a batch is left out after a resume",
            'self._begin(state["epoch"], state["position"])',
            'self._begin(state["epoch"], state["position"] + 1)',
            "unit/data/test_loader.py",
        ),
        (
            "every epoch has the same order",
            "default_rng((self.seed, epoch))",
            "default_rng((self.seed, 0))",
            "unit/data/test_loader.py",
        ),
        (
            "all ranks read the same",
            "[self.rank :: self.world]",
            "[:: self.world]",
            "unit/data/test_loader.py",
        ),
        (
            "a budget of less than a text gives empty batches",
            "few = min(len(chunk), max(1, round(len(chunk) * self.sorted_together / size)))",
            "few = max(1, round(len(chunk) * self.sorted_together / size))",
            "unit/data/test_loader.py",
        ),
    ),
    *bugs(
        "objectives/losses.py",
        (
            "smoothing is spread over all words but the right one, in the gradient only",
            "error[:, :vocab] -= smoothing / vocab",
            "error[:, :vocab] -= smoothing / (vocab - 1)",
            "reference/test_torch.py",
        ),
        (
            "smoothing does not take from the right word",
            "loss = log_sum - (1 - smoothing) * logits.gather(1, target)",
            "loss = log_sum - logits.gather(1, target)",
            "reference/test_torch.py",
        ),
        (
            "rows that are no words take part in the softmax",
            "logits[:, vocab:] = -torch.inf",
            "pass",
            "unit/objectives/test_losses.py",
        ),
        (
            "what does not count is learned",
            "(error * real).to(dtype)",
            "error.to(dtype)",
            "unit/objectives/test_losses.py",
        ),
    ),
    *bugs(
        "objectives/translate.py",
        ("R-Drop without its divergence", "* (p - q)).sum()", "* (p - q)).sum() * 0", CONSISTENT),
        ("both losses of R-Drop are counted in full", "return 0.5 * (words", "return (words", CONSISTENT),
    ),
    *bugs(
        "generate/sampling.py",
        (
            "top-k keeps one too few",
            "logits.topk(k, -1)",
            "logits.topk(max(k - 1, 1), -1)",
            f"{SAMPLING}::test_top_k_by_hand",
        ),
        (
            "top-p leaves out the word that reaches p",
            "before >= p",
            "before + probabilities >= p",
            f"{SAMPLING}::test_rows_are_filtered_each_by_itself",
        ),
        (
            "one draw for the whole batch",
            "seed * 1_000_003 + row",
            "seed * 1_000_003",
            f"{SAMPLING}::test_frequencies_are_the_probabilities",
        ),
    ),
    *bugs(
        "generate/search.py",
        (
            "temperature is forgotten",
            "top_k(logits / temperature, k)",
            "top_k(logits, k)",
            "contract/test_translator.py::test_words_are_drawn_as_often_as_a_colder_model_says",
        ),
        (
            "the length penalty is inverted",
            "sums / self.search.penalty(length)",
            "sums * self.search.penalty(length)",
            ENUMERATION,
        ),
        (
            "hypotheses go on from other parents",
            "return parents.gather(1, go)",
            "return parents[:, :N]",
            ENUMERATION,
        ),
        (
            "what has ended goes on",
            "alive = torch.where(ends, NEVER, best)",
            "alive = best",
            ENUMERATION,
        ),
        (
            "a translation may end anywhere in the candidates",
            "ends & (rank < N)",
            "ends & (rank < 2 * N)",
            f"{SEARCH}::test_a_narrow_beam_is_the_plain_beam_search",
        ),
        (
            "sentences that stay take the limits of those that leave",
            'for name in ("rows", "limits", "ids"',
            'for name in ("rows", "ids"',
            f"{SEARCH}::test_every_sentence_has_its_own_limit_and_ends_in_it",
        ),
    ),
    *bugs(
        "predictors/translator.py",
        (
            "the translator calls every batch unpadded",
            "ragged = len(ids[rows[0]]) != len(ids[rows[-1]])",
            "ragged = False",
            f"{MARIAN}::test_greedy_equals_generate",
        ),
        (
            "a given translation is scored with its padding",
            "right.masked_fill(~real, 0.0)",
            "right",
            "contract/test_translator.py",
        ),
        (
            "translations come back in the order of their length",
            "yield rows, source",
            "yield list(range(start, start + len(rows))), source",
            "contract/test_translator.py",
        ),
    ),
    *bugs(
        "checkpoint.py",
        (
            "a file is written in its place",
            'path.with_name(f".{path.name}{UNFINISHED}")',
            "path",
            "unit/test_checkpoint.py",
        ),
    ),
    *bugs(
        "run_folder.py",
        (
            "the weights are published before the words",
            "key=lambda p: (p == draft / WEIGHTS, p)",
            "key=lambda p: p",
            "unit/test_run_folder.py::test_kill_at_any_write_leaves_no_half_written_model",
        ),
        (
            "a file of the user's is claimed",
            "if theirs := [name for name in new if os.path.lexists(folder / name)]:",
            "if theirs := []:",
            "unit/test_run_folder.py::test_a_file_put_there_meanwhile_is_not_replaced",
        ),
    ),
]
