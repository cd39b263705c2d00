//! What is wrong does not compile, and the compiler says why. Here rather than in the library, whose features would be built once
//! more for it.

#[test]
fn what_is_wrong_does_not_compile() {
    trybuild::TestCases::new().compile_fail("tests/ui/*.rs");
}
