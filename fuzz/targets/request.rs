#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    brisk_http::fuzz::request(bytes);
    brisk_answer::fuzz::request(bytes);
});
