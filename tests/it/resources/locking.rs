//! Several processes and one settings file.

use std::time::{Duration, SystemTime};

use pi_nvim::resources::settings::{Scope, Settings, SettingsError, Trust};
use serde_json::Value;

use super::world::World;

fn load(world: &World) -> Settings {
    Settings::load(&world.places().agent_dir, &world.cwd, Trust::Trusted)
}

#[test]
fn writers_side_by_side_lose_nothing() {
    let world = World::project();
    std::thread::scope(|scope| {
        for writer in 0..3 {
            let world = &world;
            scope.spawn(move || {
                let mut settings = load(world);
                for n in 0..5 {
                    let key = format!("key-{writer}-{n}");
                    // The wait for a lock is short by design; what did not get through goes with a later write.
                    drop(settings.set(Scope::Global, &[&key], n.into()));
                }
                while settings
                    .set(Scope::Global, &["last"], writer.into())
                    .is_err()
                {}
            });
        }
    });
    let text = std::fs::read_to_string(world.places().agent_dir.join("settings.json")).unwrap();
    let file: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(file.as_object().unwrap().len(), 16);
}

#[test]
fn a_lock_of_another_process_is_respected_until_it_is_dead() {
    let world = World::project();
    let lock = world.places().agent_dir.join("settings.json.lock");
    std::fs::create_dir(&lock).unwrap();
    let mut settings = load(&world);
    let err = settings.set(Scope::Global, &["a"], 1.into()).unwrap_err();
    assert!(matches!(&err, SettingsError::Lock(_)), "{err}");
    assert!(!world.places().agent_dir.join("settings.json").exists());
    let old = SystemTime::now() - Duration::from_secs(11);
    std::fs::File::open(&lock)
        .unwrap()
        .set_modified(old)
        .unwrap();
    settings.set(Scope::Global, &["a"], 1.into()).unwrap();
    assert!(!lock.exists());
}
