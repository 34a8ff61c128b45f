"""Bugs of BERT's pre-training: what is hidden, what follows, and what is counted."""

from tests.zoo.bug import bugs

MASKING = "unit/data/test_masking.py"
SHARES = f"{MASKING}::test_fifteen_per_cent_are_chosen_and_share_80_10_10"
PAIRS = f"{MASKING}::test_a_pair_is_what_its_label_says"
PACKED = f"{MASKING}::test_packed_batches_have_one_shape_and_the_same_examples"
ROOM = f"{MASKING}::test_a_packed_batch_asks_for_no_more_than_it_has_room_for"
LOSS = "reference/test_masked_token.py::test_loss_and_gradients_equal_theirs"

PRETRAINING = [
    *bugs(
        "data.masking",
        ("nine tenths become [MASK]", "HIDE", "HIDE, REPLACE = 0.8, 0.9", "HIDE, REPLACE = 0.9, 0.95", SHARES),
        (
            "nothing is replaced by another word",
            "hide",
            "(what < REPLACE), other, shown)",
            "(what < 0), other, shown)",
            SHARES,
        ),
        ("special tokens are put in a word's place", "hide", "other = ordinary[", "other = np.arange(5)[0 * ", SHARES),
        (
            "the same words are hidden in every epoch",
            "hide",
            "key = uniform(0, seed, epoch,",
            "key = uniform(0, seed, 0,",
            f"{MASKING}::test_hiding_is_fresh_each_epoch_and_depends_on_the_row_alone",
        ),
        (
            "pieces of a word are chosen apart",
            "hide",
            "np.where(goes_on, 0, everywhere)",
            "np.where(goes_on, everywhere, everywhere)",
            f"{MASKING}::test_whole_words_are_hidden_with_all_their_pieces",
        ),
        (
            "a wrong B may come from the same document",
            "draw_rows",
            "donors[-1] if other == document else other",
            "document",
            PAIRS,
        ),
        (
            "a wrong B opens its document",
            "draw_rows",
            "low, high = borders[other] + 1,",
            "low, high = borders[other],",
            PAIRS,
        ),
        (
            "labels are upside down",
            "FOLLOWS",
            "FOLLOWS, ELSE, ALONE = 0, 1, -1",
            "FOLLOWS, ELSE, ALONE = 1, 0, -1",
            f"{MASKING}::test_the_numbers_of_the_labels_are_theirs",
        ),
        (
            "two of three pairs follow",
            "draw_rows",
            "if rand() < 0.5:\n  ",
            "if rand() < 0.67:\n  ",
            f"{MASKING}::test_half_of_the_pairs_follow",
        ),
        (
            "words are chosen over all rows together",
            "hide",
            "np.argsort(which + np.where(",
            "np.argsort(0 * which + np.where(",
            SHARES,
        ),
        (
            "what fills a packed batch up is one long row",
            "load",
            "np.minimum(rules.length, left -",
            "np.minimum(left, left -",
            PACKED,
        ),
        (
            "a packed batch has rows without end",
            "PackedPlan._cut",
            "if width > room or i - start == most:",
            "if width > room:",
            ROOM,
        ),
        (
            "more is asked for than there is room for",
            "load",
            "targets[np.flatnonzero(targets >= 0)[room:]] = NO_TARGET",
            "pass",
            ROOM,
        ),
        (
            "text after a wrong B is lost",
            "draw_rows",
            "                end = middle\n",
            "",
            f"{MASKING}::test_epoch_reads_every_sentence_in_tight_batches",
        ),
    ),
    *bugs(
        "objectives.masked_token",
        (
            "pairs weigh as much as single words",
            "MaskedToken.loss_sum",
            "words + batch.weight * pairs",
            "words + pairs",
            LOSS,
        ),
        (
            "padding is looked at",
            "MaskedToken.device_loss",
            "x = model(ids, lengths, sentences, starts)",
            "x = model(ids, None, sentences, starts)",
            LOSS,
        ),
        (
            "sentences go unnumbered",
            "MaskedToken.device_loss",
            "x = model(ids, lengths, sentences, starts)  # B",
            "x = model(ids, lengths, None, starts)  #",
            LOSS,
        ),
        (
            "packed pairs are classified by their last token",
            "firsts",
            "hidden[0, starts[:-1].clamp(",
            "hidden[0, (starts[1:] - 1).clamp(",
            LOSS,
        ),
        (
            "the head meets all places",
            "MaskedToken.device_loss",
            "hidden = model.words(x.flatten(0, 1)[chosen])",
            "hidden = model.words(x.flatten(0, 1))[chosen]",
            "reference/test_masked_token.py::test_the_head_meets_the_hidden_words_alone",
        ),
    ),
]
