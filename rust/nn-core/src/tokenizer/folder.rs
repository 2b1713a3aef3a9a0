//! What a folder that transformers opens says of its tokenizer.

use super::Tokenizer;
use crate::format::{Table, Value};

impl Tokenizer {
    /// The ids of begin, end and padding as `config.json` and `generation_config.json` have them; none for none.
    pub fn special_ids(&self) -> Table {
        let value = |id: Option<i32>| id.map(i64::from).into();
        Table::from([
            ("bos_token_id", value(self.begin_id())),
            ("eos_token_id", value(self.end_id())),
            ("pad_token_id", value(self.pad_id())),
        ])
    }

    /// The content of `tokenizer_config.json`, by which transformers gives a text the ids that it has here, the begin id
    /// before them.
    pub fn for_transformers(&self) -> Table {
        let name = |id: usize| Value::from(self.pieces[id].text.as_str());
        let name_or_none = |id: Option<usize>| id.map_or(Value::None, name);
        Table::from([
            ("add_bos_token", self.begin.is_some().into()),
            ("add_eos_token", false.into()),
            ("bos_token", name_or_none(self.begin)),
            ("eos_token", name_or_none(self.end)),
            ("unk_token", name(self.unknown)),
            ("pad_token", name_or_none(self.pad)),
            // transformers 4 puts a space before every text unless told otherwise, whatever the model's file says;
            // "legacy" has it begin again after a control token, as SentencePiece does.
            ("add_prefix_space", self.puts_first_space.into()),
            ("legacy", true.into()),
            ("clean_up_tokenization_spaces", false.into()),
            ("tokenizer_class", "LlamaTokenizer".into()),
        ])
    }
}
