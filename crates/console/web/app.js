// Shell of the console: connection, navigation, banners, keyboard.
import { html, render, Component } from './dom.js';
import { age, clean, clock } from './format.js';
import { keys, handleKey, KEY_HELP } from './keys.js';
import { Live } from './live.js';
import { current, kept, link, VIEWS } from './route.js';
import { Store } from './store.js';
import { FullPage, HelpPage, LoginPage, MessagePage } from './pages.js';
import { NowView } from './views/now.js';
import { ChartsView } from './views/charts.js';
import { StreamsView } from './views/streams.js';
import { RequestsView } from './views/requests.js';
import { SessionsView } from './views/sessions.js';
import { SlosView } from './views/slos.js';
import { CompareView } from './views/compare.js';
import { CostView, EnginesView, hasCost, RateLimitsView } from './views/capacity.js';

const VIEW_COMPONENTS = {
  now: NowView,
  charts: ChartsView,
  streams: StreamsView,
  requests: RequestsView,
  sessions: SessionsView,
  slos: SlosView,
  compare: CompareView,
  engines: EnginesView,
  limits: RateLimitsView,
  cost: CostView,
};
/** Without an event for this long, the page says so. Deltas come once a second. */
const SILENCE_SHOWN_SECONDS = 3;
const RECOVERY_SHOWN_MS = 15_000;

const store = new Store();

class App extends Component {
  state = { help: false };

  componentDidMount() {
    this.live = new Live({
      onEvent: (name, data) => this.#receive(name, data),
      onStatus: (status) => this.#followStatus(status),
    });
    addEventListener('hashchange', () => {
      keys.list = null;
      this.forceUpdate();
    });
    addEventListener('keydown', (event) =>
      handleKey(event, {
        toggleHelp: () => this.setState(({ help }) => ({ help: !help })),
        closeHelp: () => this.setState({ help: false }),
        views: this.#views(),
      }),
    );
    // Ages and the silence banner move also while nothing arrives.
    setInterval(() => {
      if (!document.hidden && this.live.status !== 'live') this.forceUpdate();
      else if (!document.hidden && (store.silence() ?? 0) > SILENCE_SHOWN_SECONDS) this.forceUpdate();
    }, 1000);
    this.live.start();
  }

  /** On a narrow screen, the navigation scrolls to the present view. */
  componentDidUpdate() {
    const link = document.querySelector('nav [aria-current]');
    if (!link || link.textContent === this.shownLink) return;
    this.shownLink = link.textContent;
    link.scrollIntoView({ block: 'nearest', inline: 'center' });
  }

  #receive(name, data) {
    const silence = store.silence();
    const wasReady = store.ready;
    if (!store.apply(name, data)) {
      this.live.resynchronize();
      return;
    }
    if (wasReady && silence > SILENCE_SHOWN_SECONDS) {
      const restarted = store.restart && store.restart !== this.shownRestart;
      this.shownRestart = store.restart;
      this.recovery = { silence, restarted: restarted ? store.restart.at : null, until: Date.now() + RECOVERY_SHOWN_MS };
    }
    this.#schedule();
  }

  #followStatus() {
    this.#schedule();
  }

  /** Renders at most once per frame. */
  #schedule() {
    this.frame ??= requestAnimationFrame(() => {
      this.frame = null;
      this.forceUpdate();
    });
  }

  #views() {
    return VIEWS.filter(([name]) => {
      if (name === 'engines') return (store.engines ?? []).length > 0;
      if (name === 'limits') return (store.rate_limits ?? []).length > 0;
      if (name === 'cost') return hasCost(store);
      return true;
    });
  }

  render(_, { help }) {
    if (!this.live) return null;
    const { status } = this.live;
    const route = current();
    if (status === 'login') return html`<${LoginPage} live=${this.live} wasLive=${store.ready} />`;
    if (status === 'full') return html`<${FullPage} live=${this.live} />`;
    if (status === 'refused')
      return html`<${MessagePage} title="The admin port refuses this page" text=${clean(this.live.message, 500)} hint="On an address other than loopback, the admin port needs a token (admin.token_file)." retry=${() => this.live.connect()} />`;
    if (status === 'missing')
      return html`<${MessagePage} title="This process has no console API" text=${clean(this.live.message, 500)} hint="The setting console: false turns it off." retry=${() => this.live.connect()} />`;
    const View = VIEW_COMPONENTS[route.view];
    return html`
      <a class="skip" href="#main" onClick=${(event) => {
        event.preventDefault();
        document.getElementById('main')?.focus();
      }}>Skip to content</a>
      <${Header} live=${this.live} views=${this.#views()} route=${route} onHelp=${() => this.setState({ help: true })} />
      <${Banners} live=${this.live} recovery=${this.recovery} />
      <main id="main" tabindex="-1" class="view-${route.view}" data-sequence=${store.sequence} data-interval=${store.lastInterval}>
        ${store.ready ? html`<${View} key=${route.view} store=${store} live=${this.live} params=${route.params} />` : html`<p class="loading" role="status">Connecting to the process …</p>`}
      </main>
      ${help && html`<${HelpPage} keys=${KEY_HELP} onClose=${() => this.setState({ help: false })} />`}`;
  }
}

function Header({ live, views, route, onHelp }) {
  const params = kept(route.params);
  return html`<header>
    <div class="bar">
      <a class="brand" href=${link('now')}>tokengauge</a>
      ${
        store.ready &&
        html`<span class="process" title=${`version ${clean(store.process.version)}, started ${clock(store.process.started_unix_ms)}`}>
        <bdi class="name">${clean(store.process.name, 80)}</bdi>
        <span class="process-detail"> · up ${age((store.clock - store.process.started_unix_ms) / 1000)}</span></span>`
      }
      <span class="spacer"></span>
      ${store.ready && html`<${Verdict} conditions=${store.conditions} />`}
      <${LiveMark} live=${live} />
      <button type="button" class="help-button" aria-label="Keys and definitions" title="Keys and definitions ( ? )" onClick=${onHelp}>?</button>
    </div>
    <nav aria-label="Views">
      ${views.map(([name, text], index) => html`<a href=${link(name, params)} aria-current=${route.view === name ? 'page' : null} title=${`${text} ( ${(index + 1) % 10} )`}>${text}${badge(name)}</a>`)}
    </nav>
  </header>`;
}

/** Number of failing conditions that point to a view. */
function badge(name) {
  if (!store.ready || name === 'now') return null;
  const conditions = store.conditions.filter((condition) => condition.view === name);
  if (conditions.length === 0) return null;
  const worst = conditions.some(({ severity }) => severity === 'critical') ? 'critical' : 'warning';
  return html` <span class="badge ${worst}" aria-label=${`${conditions.length} failing`}>${conditions.length}</span>`;
}

function Verdict({ conditions }) {
  const critical = conditions.filter(({ severity }) => severity === 'critical').length;
  const warnings = conditions.length - critical;
  if (conditions.length === 0) return html`<a class="verdict good" href=${link('now')}>✓ OK</a>`;
  const text = [critical && `${critical} critical`, warnings && `${warnings} warning${warnings > 1 ? 's' : ''}`]
    .filter(Boolean)
    .join(', ');
  return html`<a class="verdict ${critical ? 'critical' : 'warning'}" href=${link('now')}>${critical ? '▲' : '◆'} ${text}</a>`;
}

function LiveMark({ live }) {
  const silence = store.silence();
  if (live.status === 'live' && (silence ?? 0) <= SILENCE_SHOWN_SECONDS)
    return html`<span class="live-mark live" title="A new report arrives each second">
      <span class="dot" aria-hidden="true"></span>live</span>`;
  return html`<span class="live-mark" title=${clean(live.message)}>${store.ready ? 'not live' : 'connecting'}</span>`;
}

function Banners({ live, recovery }) {
  const silence = store.silence();
  const banners = [];
  if (store.ready && (live.status !== 'live' || silence > SILENCE_SHOWN_SECONDS)) {
    // A change of the connection that takes less than a second is not worth a banner.
    if (silence >= 1) banners.push(html`<${Silence} live=${live} silence=${silence} />`);
  } else if (!store.ready && live.status === 'waiting') {
    const reason = clean(live.message, 200);
    banners.push(html`<div class="banner warning" role="status">
      The process does not respond: ${reason}. The page tries again by itself.</div>`);
  }
  if (live.status === 'live' && recovery && recovery.until > Date.now()) {
    const restart = recovery.restarted
      ? ` The process restarted at ${clock(recovery.restarted)}; values from before are of the former process.`
      : '';
    banners.push(html`<div class="banner note" role="status">
      Reports arrive again after ${age(recovery.silence)} without data.${restart}</div>`);
  }
  if (store.ready && store.groupsLeftOut > 0) {
    banners.push(html`<div class="banner quiet">
      Groups of provider, model, route and tenant that the charts leave out: ${store.groupsLeftOut}. The limit is ${store.settings.max_groups}.</div>`);
  }
  return banners.length ? html`<div class="banners">${banners}</div>` : null;
}

function Silence({ live, silence }) {
  const reason = live.message ? ` Reason: ${clean(live.message, 200)}.` : '';
  const wait = Math.max(0, (live.retryAt - Date.now()) / 1000);
  const next = live.status === 'waiting' ? `${reason} Next attempt in ${age(wait)}.` : ' Connecting.';
  return html`<div class="banner warning" role="status">
    <strong>No data for ${age(silence)}.</strong> The page shows values of ${clock(store.at)}.${next}${' '}
    <button type="button" class="small" onClick=${() => live.connect()}>Connect now</button></div>`;
}

render(html`<${App} />`, document.getElementById('app'));
