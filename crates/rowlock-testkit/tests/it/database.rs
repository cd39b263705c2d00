use rowlock_testkit::TestDb;

#[tokio::test]
async fn a_test_gets_a_database_of_its_own() {
    let t = std::time::Instant::now();
    let db = TestDb::new().await.unwrap();
    eprintln!("{:?}", t.elapsed());
    let t = std::time::Instant::now();
    let db2 = TestDb::new().await.unwrap();
    eprintln!("{:?} {}", t.elapsed(), db2.url());
    let t = std::time::Instant::now();
    drop(db);
    eprintln!("{:?}", t.elapsed());
}
