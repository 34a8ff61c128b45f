"""What may go wrong in the spine: attention, masks, caches, the translators."""

from tests.zoo.bug import bugs

CONTRACT, TRANSLATORS = "contract/test_contract.py", "contract/test_translators.py"
MARIAN = "reference/test_marian.py"
LOGITS = f"{MARIAN}::test_transformers_loads_our_folder_with_equal_gradients"
PAST = f"{CONTRACT}::test_the_past_does_not_depend_on_the_future"
PADDING = f"{CONTRACT}::test_rows_do_not_depend_on_padding_or_their_batch"
STEPS = f"{CONTRACT}::test_decoding_in_steps_equals_decoding_at_once"
LEAVING = f"{CONTRACT}::test_decoding_in_steps_equals_decoding_at_once"
GRADIENTS = f"{CONTRACT}::test_every_parameter_gets_a_gradient"
STILL = f"{CONTRACT}::test_evaluation_is_still_and_training_is_not"
COUNT = f"{TRANSLATORS}::test_parameters_are_counted_by_the_papers_formula"
FIRST_LOSS = f"{CONTRACT}::test_the_first_loss_is_near_that_of_guessing"

SPINE = [
    *bugs(
        "nn.attention",
        (
            "plain scores are not scaled",
            "attention_weights",
            "scores = q @ k.mT / math.sqrt(q.size(-1))",
            "scores = q @ k.mT",
            "unit/nn/test_masks.py",
        ),
        (
            "scores are scaled by d, not by its root",
            "fast_attention",
            "mask.sdpa(q.dtype), dropout_p",
            "mask.sdpa(q.dtype), scale=1 / q.size(-1), dropout_p",
            LOGITS,
        ),
        (
            "heads are split without transposing",
            "split_heads",
            "x.unflatten(-1, (heads, -1)).transpose(1, 2)",
            "x.reshape(x.size(0), heads, x.size(1), -1)",
            LOGITS,
        ),
        (
            "heads are merged without transposing",
            "merge_heads",
            "x.transpose(1, 2).flatten(2)",
            "x.reshape(x.size(0), x.size(2), -1)",
            LOGITS,
        ),
        (
            "q and k are swapped",
            "SelfAttention.mix",
            "q, k, v = qkv.split",
            "k, q, v = qkv.split",
            LOGITS,
        ),
        (
            "memory's keys and values are swapped",
            "CrossAttention.keys_values",
            "        return k, v\n",
            "        return v, k\n",
            LOGITS,
        ),
        (
            "what the decoder reads from the memory is detached",
            "CrossAttention.forward",
            "merge_heads(self.attend(q, *kv, mask))",
            "merge_heads(self.attend(q, *kv, mask)).detach()",
            GRADIENTS,
        ),
        (
            "additive attention sees padding",
            "AdditiveAttention.forward",
            "scores = scores.masked_fill(~mask, torch.finfo(scores.dtype).min)\n        weights",
            "scores = scores + 0\n        weights",
            PADDING,
        ),
        (
            "additive attention forgets tanh",
            "AdditiveAttention.forward",
            "self.v(torch.tanh(q[:, :, None] + keys[:, None]))",
            "self.v(q[:, :, None] + keys[:, None])",
            "unit/nn/test_attention.py",
        ),
    ),
    *bugs(
        "nn.dropout",
        (
            "the first bit of a draw is never one",
            "Dropped.forward",
            "random_(-(1 << 63), None)",
            "random_()",
            "unit/nn/test_dropout.py",
        ),
        (
            "what is left is not made up for",
            "Dropped.forward",
            "ctx.scale = LEVELS / (LEVELS - zeros)",
            "ctx.scale = 1.0",
            "unit/nn/test_dropout.py",
        ),
        (
            "the gradient of what is dropped goes on",
            "Dropped.backward",
            "(dy * keep).mul_(ctx.scale)",
            "dy * ctx.scale",
            "unit/nn/test_dropout.py",
        ),
    ),
    *bugs(
        "nn.masks",
        (
            "the mask lets one future word through",
            "Causal.sdpa",
            'return {"is_causal": True} if self.size > 1 else {}',
            'return {"attn_mask": torch.ones(self.size, self.size, dtype=torch.bool, device=self.device).tril(1)}',
            PAST,
        ),
        (
            "there is no causal mask",
            "Causal.sdpa",
            'return {"is_causal": True} if self.size > 1 else {}',
            'return {"is_causal": False}',
            PAST,
        ),
        (
            "a word cannot see itself",
            "Causal.sdpa",
            'return {"is_causal": True} if self.size > 1 else {}',
            'return {"attn_mask": torch.ones(self.size, self.size, dtype=torch.bool, device=self.device).tril(-1)}',
            LOGITS,
        ),
        (
            "the drawn causal table is another one",
            "Causal.dense",
            "dtype=torch.bool, device=self.device).tril()",
            "dtype=torch.bool, device=self.device).tril(-1)",
            "unit/nn/test_masks.py",
        ),
        (
            "the padding mask is upside down",
            "Lengths.__init__",
            "(places < lengths[:, None])",
            "(places >= lengths[:, None])",
            PADDING,
        ),
        (
            "the mask of sentences that stay is that of the first ones",
            "Lengths.select",
            "return Lengths(self.lengths[rows], self.size)",
            "return Lengths(self.lengths[: len(rows)], self.size)",
            LEAVING,
        ),
    ),
    *bugs(
        "nn.blocks",
        (
            "the residual around the encoder's attention is lost",
            "PostNormEncoderLayer.forward",
            "add_norm(x, self.attention(x, mask), self.drop, self.norm1)",
            "self.norm1(self.drop(self.attention(x, mask)))",
            LOGITS,
        ),
        (
            "the residual around the decoder's feed-forward is lost",
            "PostNormDecoderLayer.forward",
            "add_norm(x, self.mlp(x), self.drop, self.norm3)",
            "self.norm3(self.drop(self.mlp(x)))",
            LOGITS,
        ),
        (
            "a norm is built and never used",
            "PreNormEncoderLayer.forward",
            "self.attention(self.norm1(x), mask), self.drop, self.norm2)\n        x = x + self.drop(self.mlp(y))",
            "self.attention(self.norm1(x), mask), self.drop, self.norm2)\n        x = x + self.drop(self.mlp(x))",
            GRADIENTS,
        ),
        (
            "the activation is forgotten",
            "FeedForward.forward",
            "feed_forward(x, self.up, self.act, self.down, self.activation)",
            "self.down(self.up(x))",
            LOGITS,
        ),
        ("norm runs over the batch", "Norm.forward", "super().forward(x)", "super().forward(x - x.mean(0))", PADDING),
    ),
    *bugs(
        "nn.cache",
        (
            "values are written to other slots than keys",
            "LayerCache.extend",
            "self.values.index_copy_(2, self.slots, v)",
            "self.values.index_copy_(2, self.slots.flip(0), v)",
            "unit/nn/test_cache.py",
        ),
        (
            "values stand in another order than keys",
            "LayerCache.extend",
            "[:, :, self.slots] = k, v",
            "[:, :, self.slots] = k, v.flip(2)",
            STEPS,
        ),
        (
            "the cache keeps the wrong rows",
            "Cache.select",
            "= whole[rows, :, :stop]",
            "= whole[: len(rows), :, :stop]",
            LEAVING,
        ),
    ),
    *bugs(
        "nn.positions",
        (
            "waves of another length",
            "waves",
            "def waves(places: int, width: int, theta: float = 10000.0",
            "def waves(places: int, width: int, theta: float = 1000.0",
            "unit/nn/test_positions.py",
        ),
    ),
    *bugs(
        "nn.recurrent",
        (
            "the LSTM's gates are in another order",
            "lstm_step",
            "(ai, af, ag, ao), (bi",
            "(af, ai, ag, ao), (bi",
            "unit/nn/test_recurrent.py",
        ),
        (
            "the GRU resets its input too",
            "gru_step",
            "torch.tanh(an + r * bn)",
            "torch.tanh(r * (an + bn))",
            "unit/nn/test_recurrent.py",
        ),
        (
            "the GRU's update gate is inverted",
            "gru_step",
            "(1 - z) * torch.tanh",
            "z * torch.tanh",
            "unit/nn/test_recurrent.py",
        ),
    ),
    *bugs(
        "nn.init",
        (
            "embeddings start ten times too large",
            "glorot_",
            "std=module.embedding_dim**-0.5",
            "std=10 * module.embedding_dim**-0.5",
            FIRST_LOSS,
        ),
    ),
    *bugs(
        "models.transformer",
        (
            "the padding mask is forgotten",
            "Transformer.encode",
            "Everything() if lengths is None else Lengths(lengths, source.size(1))",
            "Everything()",
            PADDING,
        ),
        (
            "positions start at one",
            "Transformer.embed",
            "where = torch.arange(ids.size(1)",
            "where = 1 + torch.arange(ids.size(1)",
            LOGITS,
        ),
        (
            "positions are forgotten",
            "Transformer.placed",
            "self.token(ids) * self.scale + place(where)",
            "self.token(ids) * self.scale",
            LOGITS,
        ),
        (
            "embeddings are not scaled",
            "Transformer.__init__",
            "self.scale = math.sqrt(c.width)",
            "self.scale = 1.0",
            LOGITS,
        ),
        (
            "a step stands one place too far",
            "Transformer.step",
            "self.decoder_place, state.time)",
            "self.decoder_place, state.time + 1)",
            STEPS,
        ),
        (
            "every step stands at the start",
            "Transformer.step",
            "self.decoder_place, state.time)",
            "self.decoder_place, 0 * state.time)",
            STEPS,
        ),
        (
            "every step overwrites the first",
            "TransformerState.grow",
            "slots = slice(self.stop, self.stop + N)",
            "slots = slice(0, N)",
            STEPS,
        ),
        (
            "the table of ancestors is not re-ordered",
            "TransformerState.reorder",
            "self.ancestors.gather(1, parents[:, :, None].expand(-1, -1, self.ancestors.size(2)))",
            "self.ancestors[:, :1].expand(-1, N, -1).clone()",
            STEPS,
        ),
        (
            "all decoder layers are one",
            "Transformer.__init__",
            "nn.ModuleList(DECODER_LAYERS[c.norm](*parts) for _ in range(c.decoder_layers))",
            "nn.ModuleList([DECODER_LAYERS[c.norm](*parts)] * c.decoder_layers)",
            COUNT,
        ),
        (
            "the last norm is forgotten",
            "Transformer.encode",
            "return self.encoder_norm(x), mask",
            "return x, mask",
            GRADIENTS,
        ),
        (
            "dropout also at evaluation",
            "Transformer.__init__",
            "self.drop = Dropout(c.dropout)",
            "self.drop = lambda x: nn.functional.dropout(x, c.dropout)",
            STILL,
        ),
    ),
    *bugs(
        "models.base",
        (
            "the head is not tied",
            "EncoderDecoder.head",
            "return self.token.weight  # V D",
            "return self.token.weight.detach()",
            LOGITS,
        ),
    ),
    *bugs(
        "models.seq2seq",
        (
            "reading backwards begins with the padding",
            "Seq2Seq.encode",
            "mirror = torch.where(where < sizes[:, None], sizes[:, None] - 1 - where, where)",
            "mirror = S - 1 - where",
            PADDING,
        ),
        (
            "the cell of another hypothesis goes on",
            "Seq2SeqState.reorder",
            "tuple(part.gather(1, parents[:, :, None].expand(-1, -1, part.size(2))) for part in self.cell)",
            "tuple(part[:, :1].expand(-1, parents.size(1), -1).clone() for part in self.cell)",
            STEPS,
        ),
    ),
    *bugs(
        "models.published.marian",
        (
            "q and k are swapped on the way out and in",
            "ENCODER",
            '"self_attn.q_proj", "self_attn.k_proj"',
            '"self_attn.k_proj", "self_attn.q_proj"',
            LOGITS,
        ),
    ),
]
