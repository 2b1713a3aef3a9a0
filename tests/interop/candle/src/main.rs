//! Logits by candle's quantized_llama: `candle-logits MODEL.gguf ID...` writes those behind each token to standard
//! output, f32, little-endian, [ids, vocabulary]. Tokens are read one at a time, as when they are generated.

use candle_core::quantized::gguf_file;
use candle_core::{Device, Error, Result, Tensor};
use candle_transformers::models::quantized_llama::ModelWeights;
use std::fs::File;
use std::io::{BufReader, Write};

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let path = arguments
        .next()
        .ok_or_else(|| Error::msg("usage: candle-logits MODEL.gguf ID..."))?;
    let ids = arguments
        .map(|id| id.parse::<u32>())
        .collect::<std::result::Result<Vec<_>, _>>();
    let mut file = BufReader::new(File::open(&path)?);
    let content = gguf_file::Content::read(&mut file)?;
    let mut model = ModelWeights::from_gguf(content, &mut file, &Device::Cpu)?;
    let mut output = std::io::stdout().lock();
    for (position, id) in ids.map_err(Error::wrap)?.into_iter().enumerate() {
        let logits = model.forward(&Tensor::new(&[[id]], &Device::Cpu)?, position)?;
        for value in logits.flatten_all()?.to_vec1::<f32>()? {
            output.write_all(&value.to_le_bytes())?;
        }
    }
    Ok(())
}
