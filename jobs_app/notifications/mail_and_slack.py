"""Messages for people by Apprise: mail through the server of the site, and incoming webhooks of Slack."""

from urllib.parse import quote

from django.conf import settings

from jobs_app.notifications.addresses import is_one_mail_address, slack_tokens
from jobs_app.notifications.outbox import Outcome
from jobs_app.notifications.texts import Text

NOT_TAKEN = Outcome(sent=False, error="The mail server of the site did not take it; an administrator can see why.")
NOT_ONE = Outcome(sent=False, error="It is not one plain mail address: delete the target, and add another.", final=True)
NO_SERVER = Outcome(sent=False, error="This site sends no mail (MOTLEY_MAIL_URL is empty).", final=True)


def send_mail(address: str, text: Text, identifier: str) -> Outcome:
    """Mail to one address, whose header `Motley-Id` stays the same when it is sent again."""
    if not settings.MOTLEY_MAIL_URL:
        return NO_SERVER
    if not is_one_mail_address(address):  # it was accepted by an earlier release
        return NOT_ONE
    between = "&" if "?" in settings.MOTLEY_MAIL_URL else "?"
    wanted = f"to={quote(address, safe='')}&+Motley-Id={identifier}&format=text"
    return Outcome(sent=True) if _notify(f"{settings.MOTLEY_MAIL_URL}{between}{wanted}", text) else NOT_TAKEN


def send_slack(address: str, text: Text) -> Outcome:
    """Message to the channel of an incoming webhook."""
    url = f"slack://{'/'.join(slack_tokens(address))}/?image=no&footer=no&redirect=no&format=text"
    if _notify(url, Text(_escaped(text.title), _escaped(text.body))):
        return Outcome(sent=True)
    return Outcome(sent=False, error="Slack did not take it: see whether its incoming webhook still exists.")


def _notify(url: str, text: Text) -> bool:
    import apprise  # half a second, which a process that sends none need not wait for

    plugin = apprise.Apprise.instantiate(url, suppress_exceptions=False)
    if plugin is None:
        raise ValueError("Apprise does not understand the address")
    return bool(plugin.notify(body=text.body, title=text.title, body_format=apprise.NotifyFormat.TEXT))


def _escaped(text: str) -> str:
    """Escape what Slack would read as a mention or a link: names of jobs are untrusted text."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
