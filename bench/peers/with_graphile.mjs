// graphile-worker on the stage of `bench.peers`: says the lines that stage.py describes.
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

const [modules, url, settingsText, work, countText] = process.argv.slice(2);
const { enqueueBatch, ...worker } = JSON.parse(settingsText);
const count = Number(countText);
const found = createRequire(pathToFileURL(modules + "/")).resolve("graphile-worker");
const { Logger, makeWorkerUtils, run, runMigrations } = await import(pathToFileURL(found));

const CALLERS = 100; // that enqueue at the same time
const SETTLE = 1000; // milliseconds for a worker to come to rest before it is given one job at a time
const PAUSE = 5; // between two of those: it has gone back to waiting
const URGENT = 50; // jobs of high priority behind a backlog

const preset = { worker: { connectionString: url, logger: new Logger(() => () => {}), ...worker } };

const say = (facts) => process.stdout.write(JSON.stringify(facts) + "\n");
const sleep = (milliseconds) => new Promise((resolve) => setTimeout(resolve, milliseconds));
const start = (handle) =>
  run({ preset, noHandleSignals: true, parsedCronItems: [], taskList: { noop: async ({ n }) => handle(n) } });

function askedToEnd() {
  process.stdin.resume();
  return new Promise((resolve) => process.stdin.on("end", resolve));
}

async function enqueueing(enqueue) {
  const utils = await makeWorkerUtils({ preset });
  await utils.withPgClient((client) => client.query("select 1")); // connected before the clock runs
  const started = performance.now();
  await enqueue(utils);
  say({ seconds: (performance.now() - started) / 1000 });
  await utils.release();
}

const WORK = {
  "set up": () => runMigrations({ preset }),

  "bulk enqueue": () =>
    enqueueing(async (utils) => {
      for (let first = 0; first < count; first += enqueueBatch) {
        const length = Math.min(enqueueBatch, count - first);
        await utils.addJobs(Array.from({ length }, (_, at) => ({ identifier: "noop", payload: { n: first + at } })));
      }
    }),

  "one-by-one enqueue": () =>
    enqueueing(async (utils) => {
      for (let n = 0; n < count; n++) await utils.addJob("noop", { n });
    }),

  "enqueue by 100 callers": () =>
    enqueueing(async (utils) => {
      let next = 0;
      const call = async () => {
        while (next < count) await utils.addJob("noop", { n: next++ });
      };
      await Promise.all(Array.from({ length: CALLERS }, call));
    }),

  async drain() {
    const ticked = new Uint8Array(count);
    let ran = 0;
    let allRan;
    const done = new Promise((resolve) => (allRan = resolve));
    say({ starting: true });
    const runner = await start((n) => {
      ticked[n] = 1;
      if (++ran === count) allRan();
    });
    await done;
    say({ all_ran: true });
    await askedToEnd();
    await runner.stop();
    say({ ran, different: ticked.reduce((sum, one) => sum + one, 0) });
  },

  async "pick-up"() {
    const milliseconds = [];
    let sent;
    let arrived;
    const runner = await start(() => {
      milliseconds.push(performance.now() - sent);
      arrived();
    });
    await sleep(SETTLE);
    for (let n = 0; n < count; n++) {
      const come = new Promise((resolve) => (arrived = resolve));
      sent = performance.now();
      await runner.addJob("noop", { n });
      await come;
      await sleep(PAUSE);
    }
    await runner.stop();
    say({ milliseconds });
  },

  async urgent() {
    const milliseconds = [];
    let left = count;
    let sent;
    let arrived;
    let begun;
    const first = new Promise((resolve) => (begun = resolve));
    const runner = await start((n) => {
      if (n < 0) {
        milliseconds.push(performance.now() - sent);
        arrived();
      } else {
        left--;
        begun();
      }
    });
    await first;
    while (left && milliseconds.length < URGENT) {
      const come = new Promise((resolve) => (arrived = resolve));
      sent = performance.now();
      await runner.addJob("noop", { n: -1 - milliseconds.length }, { priority: -10 });
      await come;
      await sleep(PAUSE);
    }
    await runner.stop();
    say({ milliseconds });
  },

  async idle() {
    let ran = 0;
    const runner = await start(() => ran++);
    say({ starting: true });
    await askedToEnd();
    await runner.stop();
    say({ ran });
  },
};

await WORK[work]();
