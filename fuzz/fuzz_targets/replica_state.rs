#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    weft_fuzz::targets::replica_state(data);
});
