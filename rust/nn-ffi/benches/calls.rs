//! What a call costs, beside the same call through the bare pointer, and what a product costs.
//!
//! `cargo bench -p nn-ffi`; the context has one thread, so that a call wakes nobody.
#![allow(unsafe_code)]

use divan::Bencher;
use divan::counter::ItemsCount;
use nn_ffi::{Context, DType, Device, kernels};

fn main() {
    divan::main();
}

fn context() -> Context {
    Context::open(Device::Cpu, Some(1), None).expect("there is a CPU")
}

/// A context as C has it.
fn bare() -> (&'static nn_cuda::Library, *mut nn_cuda::nncuda_ctx) {
    let library = nn_cuda::library().expect("the build made it");
    let mut handle = std::ptr::null_mut();
    // SAFETY: `handle` may be written.
    let made = unsafe { (library.nncuda_ctx_create)(nn_cuda::NNCUDA_DEVICE_CPU, 0, &raw mut handle) };
    // SAFETY: the context lives.
    let one = unsafe { (library.nncuda_ctx_set)(handle, nn_cuda::NNCUDA_CTX_THREADS, 1) };
    assert_eq!((made, one), (0, 0));
    (library, handle)
}

/// `cuda_add` of one element through the table of pointers: the cost of the library itself.
#[divan::bench]
fn add_of_one_by_pointer(bencher: Bencher<'_, '_>) {
    let ((library, handle), mut memory) = (bare(), [1.0_f32]);
    let x = memory.as_mut_ptr().cast::<std::ffi::c_void>();
    // SAFETY: the context lives, and on the CPU engine any memory of the process may be given to it.
    bencher.bench_local(|| unsafe { (library.cuda_add)(handle, x, x, x, 1, nn_cuda::NNCUDA_F32) });
    // SAFETY: nobody uses it any more.
    unsafe { (library.nncuda_ctx_destroy)(handle) };
}

/// The call with the most tensors and sizes, on none of them, through the table of pointers.
#[divan::bench]
fn flash_attention_backward_of_nothing_by_pointer(bencher: Bencher<'_, '_>) {
    let ((library, handle), x, lse, f32) = (bare(), std::ptr::null_mut(), std::ptr::null(), nn_cuda::NNCUDA_F32);
    let call = library.cuda_flash_attention_backward;
    bencher.bench_local(|| {
        // SAFETY: the context lives; sizes of zero need no memory.
        unsafe {
            call(handle, x, x, x, x, x, lse, std::ptr::null(), x, x, x, 0, 8, 1, 4, 4, 64, 256, 256, 0.125, 1, f32)
        }
    });
    // SAFETY: nobody uses it any more.
    unsafe { (library.nncuda_ctx_destroy)(handle) };
}

/// The same call as a typed function.
#[divan::bench]
fn add_of_one(bencher: Bencher<'_, '_>) {
    let context = context();
    let x = context.zeros(&[1], DType::F32).expect("there is room");
    // A result that needs no drop lets many calls share one reading of the clock.
    bencher.bench_local(|| kernels::add(&x, &x, &x).is_ok());
}

/// The same as a typed function.
#[divan::bench]
fn flash_attention_backward_of_nothing(bencher: Bencher<'_, '_>) {
    let context = context();
    let heads = context.zeros(&[0, 4, 64], DType::F32).expect("there is room");
    let lse = context.zeros(&[0, 4, 8], DType::F32).expect("there is room");
    let x = &heads;
    bencher.bench_local(|| kernels::flash_attention_backward(x, x, x, x, x, &lse, None, x, x, x, 0.125, true).is_ok());
}

/// Taking memory and giving it back.
#[divan::bench]
fn empty(bencher: Bencher<'_, '_>) {
    let context = context();
    bencher.bench_local(|| context.empty(&[64, 64], DType::F32).is_ok());
}

/// Products of square matrices.
#[divan::bench(args = [64, 256, 512])]
fn gemm(bencher: Bencher<'_, '_>, n: usize) {
    let context = context();
    let x = context.zeros(&[n, n], DType::F32).expect("there is room");
    let y = context.zeros(&[n, n], DType::F32).expect("there is room");
    let operations = ItemsCount::new(2 * n * n * n);
    bencher.counter(operations).bench_local(|| kernels::gemm(&x, &x, &y, false, true).is_ok());
}
