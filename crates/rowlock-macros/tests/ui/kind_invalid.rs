use rowlock::Job;
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize, Job)]
#[job(kind = "")]
struct Empty {}

#[derive(Serialize, Deserialize, Job)]
#[job(kind = "a\nb")]
struct ControlCharacter {}

#[derive(Serialize, Deserialize, Job)]
#[job(kind = "жжжжжжжжжжжжжжжжжжжжжжжжжжжжжжжжжжжжжжжжжжжжжжжжжжжжжжжжжжжжжжжжжжжжжжжжжжжжжжжжжжжжжжжжжжжжжжжжжжжжж")]
struct TooLong {}

const KIND: &str = "email";

#[derive(Serialize, Deserialize, Job)]
#[job(kind = KIND)]
struct Constant {}

#[derive(Serialize, Deserialize, Job)]
#[job(kind)]
struct NoValue {}

#[derive(Serialize, Deserialize, Job)]
#[job(kind("email"))]
struct List {}

#[derive(Serialize, Deserialize, Job)]
#[job(kind = "a", kind = "b")]
struct Twice {}

fn main() {}
