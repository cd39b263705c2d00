use super::bench;

#[tokio::test]
async fn numbers_of_the_queues() {
    let b = bench().await;
    assert!(b.client.stats().await.unwrap().is_empty());
    b.enqueue("mail", "k").await;
    b.finish("mail").await;
    b.enqueue("mail", "k").await;
    b.enqueue("other", "k").await;
    let all = b.client.stats().await.unwrap();
    assert_eq!(all.len(), 2);
    let mail = b.client.queue_stats("mail").await.unwrap().unwrap();
    assert_eq!(mail.name, "mail");
    assert_eq!(
        (mail.ready, mail.finished_minute, mail.finished_hour),
        (1, 1, 1)
    );
    assert_eq!(mail.sampled, 1);
    assert!(mail.run_p99_ms.is_some() && !mail.estimated);
    assert!(b.client.queue_stats("none").await.unwrap().is_none());
    assert_eq!(serde_json::to_value(&mail).unwrap()["finished_minute"], 1);
}
