//! Training on packed documents whose ends are given: the bits of documents found by the token that ends them.

use nn_core::train::{Batch, TrainConfig, Trainer};

mod tiny;

const SEPARATOR: i32 = 3;

/// A batch in which that token, and no other, ends documents.
fn batch(rows: usize, length: usize, seed: u64) -> Batch {
    let mut batch = tiny::batch(rows, length, seed);
    for (at, id) in batch.inputs.iter_mut().enumerate() {
        *id = if (at * 7 + seed as usize).is_multiple_of(5) { SEPARATOR } else { (*id).max(SEPARATOR + 1) };
    }
    batch.document_ends = Some(batch.inputs.iter().map(|id| i32::from(*id == SEPARATOR)).collect());
    batch
}

fn trainer(document_mask: Option<usize>) -> Trainer {
    let options = TrainConfig { micro_batch_size: Some(2), document_mask, ..tiny::options() };
    tiny::trainer(&tiny::context(), tiny::model(), options, true)
}

#[test]
fn ends_of_documents_are_those_of_a_separator() {
    let (mut given, mut found) = (trainer(None), trainer(Some(SEPARATOR as usize)));
    for seed in 1..5 {
        let batch = batch(3, 13, seed);
        let one = given.train_step(&batch).unwrap().loss().unwrap();
        let other = found.train_step(&Batch { document_ends: None, ..batch }).unwrap().loss().unwrap();
        assert_eq!(one.to_bits(), other.to_bits());
    }
    assert_eq!((given.eager_reason(), found.eager_reason()), (None, None)); // the last were replayed
    let weights = |trainer: &Trainer| tiny::bits(trainer.model().parameters());
    assert_eq!(weights(&given), weights(&found));

    let batch = batch(3, 13, 9);
    let tensor = |ids: &[i32]| given.model().context().tensor(ids, &[3, 13]).unwrap();
    let (ids, targets) = (tensor(&batch.inputs), tensor(&batch.targets));
    let ends = tensor(batch.document_ends.as_ref().unwrap());
    let told = given.model().evaluate_documents(&ids, &targets, Some(&ends)).unwrap();
    let other = found.model().context().tensor(&batch.inputs, &[3, 13]).unwrap();
    let wanted = found.model().context().tensor(&batch.targets, &[3, 13]).unwrap();
    assert_eq!(told, found.model().evaluate(&other, &wanted).unwrap());
    assert_ne!(told.0, given.model().evaluate(&ids, &targets).unwrap().0);

    given.train_step(&Batch { document_ends: None, ..batch }).unwrap();
    assert!(given.eager_reason().is_some(), "a step of documents was replayed for one without");
}

#[test]
fn ends_of_documents_are_checked() {
    let mut trainer = trainer(None);
    let mut wrong = batch(2, 13, 1);
    wrong.document_ends.as_mut().unwrap()[15] = 2;
    let error = trainer.train_step(&wrong).unwrap_err().to_string();
    assert!(error.ends_with("document_ends[1, 2] is 2; it must be 0 to 1"), "{error}");
    wrong.document_ends.as_mut().unwrap().pop();
    let error = trainer.train_step(&wrong).unwrap_err().to_string();
    assert_eq!(error, "25 ends of documents; a batch of 2 sequences has 13 a sequence");
}
