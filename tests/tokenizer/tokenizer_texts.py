"""What the fixtures' tokenizers learn from, and the texts that they are tried on."""

from __future__ import annotations

import random

LEARNED = (
    "A tokenizer cuts text into pieces, and every piece has a number. The model reads numbers and writes numbers.",
    "The cat sat on the mat; the dog sat on the log. Then the cat and the dog sat together, and that was that.",
    "Common words are one piece, rare words are several: token, tokens, tokenizer, tokenizers, tokenization.",
    "for index in range(10):\tprint(index * index)  # squares, with   several   spaces and\ttabs",
    "In 2024 there were 366 days, 12 months, 52 weeks: 8784 hours. Prices: 3.50, 1,000.00 and 99 per cent.",
    "Der Fluß fließt über die Brücke; die Vögel fliegen über den Fluß. Übung macht den Meister.",
    "L'été dernier, la forêt était très verte; le garçon a mangé des crêpes à l'école. Où êtes-vous?",
    "El niño pequeño come piñas y habla español. ¿Dónde está la montaña? ¡Aquí está!",
    "Кошка сидит на окне, собака сидит на полу. Кошка и собака — друзья.",
    "猫は窓に座っています。犬は床に座っています。猫と犬は友達です。",
    "The end of the text is the end of the text, and the beginning of the text is the beginning of the text.",
)

#: Name to text. A tokenizer with rules of its own for any of these shows it in its ids or in what it decodes.
TEXTS = {
    "empty": "",
    "letter": "a",
    "word": "tokenizer",
    "sentence": "The cat sat on the mat, and the dog sat on the log.",
    "space": " ",
    "spaces": "     ",
    "spaces_around": "  the cat  ",
    "spaces_between": "the   cat    sat     on",
    "tabs": "\tthe\t\tcat\t",
    "tab_and_spaces": " \t the \t cat \t ",
    "newline": "\n",
    "lines": "the cat\nthe dog\n\n\nthe end\n",
    "carriage_returns": "the cat\r\nthe dog\r\rthe end\r\n",
    "controls": "a\x01b\x02c\x07d\x08e\x0bf\x0cg\x1bh\x7fi",
    "zero": "a\x00b\x00",
    "c1_controls": "a\x80b\x85c\x9fd",
    "digits": "1234567890 0.5 1,000",
    "other_digits": "٣٤٥ ४५६ ①②③ ⅷ ½ ²",
    "latin": "Über die Brücke, où êtes-vous, el niño",
    "combining": "u\u0308ber e\u0301te\u0301 n\u0303 a\u030a\u0301 \u0301alone",
    "stacked_marks": "z\u0351\u036b\u0343\u0314a\u0323\u0307l\u0322\u0334\u0335",
    "cyrillic": "Кошка и собака",
    "greek_and_hebrew": "αβγ Ωμέγα שלום",
    "arabic": "السلام عليكم \u0640\u0640 لا إله",
    "devanagari": "नमस्ते क्षत्रिय",
    "thai": "สวัสดีครับ",
    "japanese": "猫は窓に座っています。",
    "half_width": "ﾊﾝｶｸ ｶﾞｷﾞ ￥１２３",
    "full_width": "Ｔｏｋｅｎ　ＡＢＣ！",
    "hangul": "한국어 \u1112\u1161\u11ab\u1100\u116e\u11a8",
    "ligatures": "ﬁnd ﬂow ﬃ ĳ ŉ",
    "compatibility": "㎏ ㍿ ℃ ™ Ⅳ ﷺ",
    "emoji": "😀 👍🏽 🇩🇪 ❤️",
    "joined_emoji": "👩‍👩‍👧‍👦 🏳️‍🌈 👨🏿‍🚀",
    "keycap": "1️⃣ #️⃣",
    "zero_width": "a\u200bb\u200cc\u200dd\ufeffe\u2060f",
    "spaces_of_unicode": "a\u00a0b\u1680c\u2003d\u2009e\u202ff\u205fg\u3000h",
    "lines_of_unicode": "a\u2028b\u2029c",
    "bidirectional": "a\u202eb\u202cc\u2066d\u2069",
    "soft_hyphen": "to\u00adken",
    "space_symbol": "▁the▁cat▁",
    "space_symbol_alone": "▁",
    "space_symbol_and_spaces": " ▁ ▁▁  cat",
    "replacement": "a\ufffdb",
    "noncharacters": "\ufdd0\ufffe\U0001ffff",
    "private_use": "\ue000\U000f0000\U0010ffff",
    "planes": "𝒜𝓑𝔠 𐍈 𠀀",
    "unknown_run": "ꙮꙮꙮ the ꙮ",
    "special_names": "<s>the cat</s><unk><pad>",
    "byte_names": "<0x41><0x0A>",
    "user_symbols": "<user>the cat<user>sat<use<user",
    "user_symbols_overlap": "abcabcdabcde xabc <us<user>>",
    "user_symbol_of_spaces": "the  cat <a b> the <a  b>",
    "user_symbol_full_width": "ＡＢthe ＡＢＣ",
    "punctuation": "...!!!???---***///\\\\\\",
    "code": "def f(x):\n    return x * 2  # twice\n",
    "apostrophes": "l’été, l'été, “quoted” «text»",
    "merges": "aaaaaaaaaaabbbbbbbbbb abababababab thethethethe",
    "mixed": "Ü\u0301 ﬁ\u200d Кошка\t猫\r\n１２ <user>  ▁ 😀 \x00end ",
    "ends_in_space_rule": "the cat\u3000",
    "begins_in_space_rule": "\u3000the cat",
}

# Of the letters that the drawn models know, and one that they do not.
_draw = random.Random(0)
TEXTS |= {f"drawn_{index}": "".join(_draw.choice("aabbccdd e") for _ in range(12 + 4 * index)) for index in range(12)}

#: Name to (text, how often it stands in a row): what takes too long or too deep for a careless encoder.
LONG_TEXTS = {
    "many_sentences": ("The cat sat on the mat, über die Brücke. 猫😀\n", 1000),
    "one_letter": ("a", 50000),
    "one_unknown": ("ꙮ", 5000),
    "only_spaces": (" ", 20000),
    "user_symbols_in_a_row": ("<user><us", 2000),
}

#: Texts with the names of control and added tokens of the library's tokenizers, tried as text and as tokens.
SPECIAL_TEXTS = {
    "turns": "<|im_start|>user\nThe cat<|im_end|>\n<|im_start|>assistant\n",
    "headers": "<|begin_of_text|><|start_header_id|>user<|end_header_id|>\n\nThe cat?<|eot_id|>",
    "instruction": "<s>[INST] The cat [/INST] sat.</s><s>[INST] And? [/INST]",
    "gemma_turns": "<s><start_of_turn>user\nThe  cat\n\n<end_of_turn>\n<start_of_turn>model\n",
    "calls": 'a <tool_call>\n{"name": "x"}\n</tool_call> <think>b',
    "spaces_around_names": "the  <｜User｜>  cat <|endoftext|> sat <|end|> <eos> ",
    "bert_names": "[CLS] the cat [SEP] Tokenizer tokenizer Tokenizers [MASK][PAD]",
    "extra_names": "the   <extra_id_0> cat <extra_id_0><unk></s>",
    "names_cut_short": "<|im_start <|eot_id| </ <s <unk <s></s",
    "one_after_another": "<s><s></s><|end|><|end|><|endoftext|><|endoftext|>",
    "name_in_a_word": "the<s>cat<|im_end|>sat[SEP]on",
    "pad_names": "[PAD261] [PAD365] a",
}
