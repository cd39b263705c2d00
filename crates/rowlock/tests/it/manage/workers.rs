use super::bench;

#[tokio::test]
async fn workers_are_listed_with_who_is_alive() {
    let b = bench().await;
    assert!(b.client.workers().await.unwrap().is_empty());
    b.sql(
        "select rowlock.register_worker(n, 'host', 7, '1.0', '{mail,default}', '{k}', 10, '{\"a\": 1}')
           from unnest('{b-alive,a-stopped,a-gone,a-draining}'::text[]) n;
         update rowlock.worker set seen_at = seen_at - interval '1 minute' where name = 'a-gone';
         select rowlock.unregister_worker(id) from rowlock.worker where name = 'a-stopped';
         select rowlock.heartbeat(id, 3, 'draining') from rowlock.worker where name = 'a-draining';",
    )
    .await;
    let workers = b.client.workers().await.unwrap();
    let got: Vec<_> = workers
        .iter()
        .map(|w| (&*w.name, &*w.state, w.alive, w.running))
        .collect();
    assert_eq!(
        got,
        [
            ("a-draining", "draining", true, 3),
            ("b-alive", "running", true, 0),
            ("a-gone", "running", false, 0),
            ("a-stopped", "stopped", false, 0),
        ]
    );
    let one = &workers[0];
    assert_eq!((&*one.host, one.pid, one.concurrency), ("host", 7, 10));
    assert_eq!(one.queues, ["mail", "default"]);
    assert_eq!(one.kinds, ["k"]);
    assert!(one.seen_at >= one.started_at);
    let json = serde_json::to_value(one).unwrap();
    assert_eq!(json["details"]["a"], 1);
}
