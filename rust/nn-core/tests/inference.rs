//! Models that only infer: what they take of memory.

mod tiny;

use nn_core::model::{MoEConfig, MoETransformer, Precision};

#[test]
fn weights_are_made_in_place() {
    // So large that a second copy of anything would show beside a chunk of scratch.
    let config =
        MoEConfig { vocab_size: 512, hidden_size: 256, num_layers: 4, num_experts: 8, ffn_size: 512, ..tiny::model() };
    let ctx = tiny::context();
    let exact = 2 * config.num_parameters() as usize;
    let _model = MoETransformer::random_in(&ctx, config, 4, false, Precision::BF16).unwrap();
    assert_eq!(ctx.bytes_used().unwrap(), exact);
    assert!(ctx.bytes_peak().unwrap() <= exact + (1 << 18));
}
