"""Login by OpenID Connect: django-allauth speaks with the provider, and accounts are found by issuer and subject."""

import logging
import re
import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NoReturn

from allauth.core.exceptions import ImmediateHttpResponse
from allauth.socialaccount.adapter import DefaultSocialAccountAdapter
from allauth.socialaccount.internal import jwtkit
from allauth.socialaccount.models import SocialAccount, SocialApp, SocialLogin, SocialToken
from allauth.socialaccount.providers.oauth2.client import OAuth2Error
from allauth.socialaccount.providers.oauth2.views import OAuth2CallbackView, OAuth2LoginView
from allauth.socialaccount.providers.openid_connect.provider import OpenIDConnectProvider
from allauth.socialaccount.providers.openid_connect.views import OpenIDConnectOAuth2Adapter
from django.conf import settings
from django.contrib import messages
from django.contrib.auth import login as log_in
from django.contrib.auth.models import User
from django.db import transaction
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils.http import url_has_allowed_host_and_scheme

from jobs_app.account_names import is_reserved, names_in_use, normal_name
from jobs_app.group_teams import follow_groups, granted_by
from jobs_app.identity_links import clear_for_link

log = logging.getLogger(__name__)
BACKEND = "django.contrib.auth.backends.ModelBackend"
NOT_IN_NAMES = re.compile(r"[^\w.@+-]")
MOST_OF_NAME = 140
MOST_OF_SUBJECT = 191
"""Of the column for it."""
NO_ACCOUNT = "You have no account here yet. Ask an administrator to add one with your mail address."
INACTIVE = "Your account is not active. Ask an administrator."
LINKED = (
    "This account is linked to your single sign-on now. Sessions, tokens and other credentials that somebody else "
    "could have created were revoked."
)
FAILED = "The identity provider and Motley could not agree on who you are. Try again, or ask an administrator."


# -- views -------------------------------------------------------------------------------------------------------


def begin(request: HttpRequest) -> HttpResponse:
    """Send the browser to the provider, with state and a PKCE challenge that its session keeps."""
    answer: HttpResponse = OAuth2LoginView.adapter_view(_adapter(request))(request)
    return answer


def end(request: HttpRequest) -> HttpResponse:
    """The provider has sent the browser back with a code: exchange it, and log in."""
    answer: HttpResponse = OAuth2CallbackView.adapter_view(_adapter(request))(request)
    return answer


def login_choices(request: HttpRequest) -> dict[str, str]:
    """Context processor: the label of the button on the login page; empty where no provider is configured."""
    return {"oidc_label": settings.MOTLEY_OIDC_LABEL if settings.MOTLEY_OIDC_ISSUER else ""}


def _adapter(request: HttpRequest) -> "Provider":
    if not settings.MOTLEY_OIDC_ISSUER:
        raise Http404
    return Provider(request, settings.MOTLEY_OIDC_ISSUER)


# -- the provider ------------------------------------------------------------------------------------------------


class Provider(OpenIDConnectOAuth2Adapter):  # type: ignore[misc]
    """allauth's adapter, stricter: the issuer is the configured one, and ID tokens are verified by its keys."""

    @property
    def openid_config(self) -> dict[str, Any]:
        found: dict[str, Any] = super().openid_config
        if found.get("issuer") != settings.MOTLEY_OIDC_ISSUER:
            raise OAuth2Error("The discovery document names another issuer.")
        return found

    def get_callback_url(self, request: HttpRequest, app: SocialApp) -> str:
        return f"{settings.PUBLIC_URL}{reverse('oidc-end')}"

    def complete_login(self, request: HttpRequest, app: SocialApp, token: Any, **kwargs: Any) -> SocialLogin:
        """Claims of the ID token, with those of userinfo that it lacks; both are of the same subject."""
        if "id_token" not in kwargs["response"]:
            raise OAuth2Error("The response has no ID token.")
        claims = self._decode_id_token(app, kwargs["response"]["id_token"])
        refuse_subject(claims.get("sub"))
        more = self._fetch_user_info(token.token) if "userinfo_endpoint" in self.openid_config else {}
        if not isinstance(more, dict) or (more and more.get("sub") != claims["sub"]):
            raise OAuth2Error("The user info is that of another subject.")
        more.pop("nonce", None)
        return self.get_provider().sociallogin_from_response(request, {"id_token": {**more, **claims}})

    def parse_token(self, data: Any) -> SocialToken:
        with _words_for(LookupError, ValueError, TypeError):
            return super().parse_token(data)

    def _decode_id_token(self, app: SocialApp, id_token: str) -> dict[str, Any]:
        with _words_for(LookupError, ValueError, TypeError, AttributeError):  # no `kid`, an algorithm of other keys
            claims: dict[str, Any] = jwtkit.verify_and_decode(
                credential=id_token,
                keys_url=self.openid_config["jwks_uri"],
                issuer=settings.MOTLEY_OIDC_ISSUER,
                audience=app.client_id,
                lookup_kid=jwtkit.lookup_kid_jwk,
            )
        return claims


@contextmanager
def _words_for(*faults: type[Exception]) -> Iterator[None]:
    """Raise OAuth2Error in place of what allauth and its libraries raise at an answer that is no valid one."""
    try:
        yield
    except faults as error:
        raise OAuth2Error(f"The answer of the provider is not valid: {type(error).__name__} {error}") from error


def refuse_subject(subject: object) -> None:
    """Raise OAuth2Error for a subject that is none, or cannot be stored."""
    if not isinstance(subject, str) or not subject.isprintable() or not 0 < len(subject) <= MOST_OF_SUBJECT:
        raise OAuth2Error(f"The ID token needs a subject (sub) of 1 to {MOST_OF_SUBJECT} printable characters.")


class SiteProvider(OpenIDConnectProvider):  # type: ignore[misc]
    """allauth's provider with our adapter, and with a nonce that binds the ID token to this browser's request."""

    oauth2_adapter_class = Provider

    def redirect(self, request: HttpRequest, process: str, next_url: Any = None, data: Any = None, **more: Any) -> Any:
        nonce = secrets.token_urlsafe(24)
        more["auth_params"] = {**(more.get("auth_params") or self.get_auth_params()), "nonce": nonce}
        return super().redirect(request, process, next_url, data, nonce=nonce, **more)


class Accounts(DefaultSocialAccountAdapter):  # type: ignore[misc]
    """What becomes of a person whom the provider has identified: allauth's own sign-up is not used."""

    def list_apps(self, request: HttpRequest, provider: Any = None, client_id: Any = None) -> list[SocialApp]:
        """The one of the settings; None in the database."""
        issuer = settings.MOTLEY_OIDC_ISSUER
        facts = {"client_id": settings.MOTLEY_OIDC_CLIENT_ID, "secret": settings.MOTLEY_OIDC_SECRET}
        options = {"server_url": issuer, "oauth_pkce_enabled": True}
        names = {"provider": "openid_connect", "provider_id": issuer, "name": settings.MOTLEY_OIDC_LABEL}
        return [SocialApp(**names, **facts, settings=options)] if issuer else []

    def get_provider(self, request: HttpRequest, provider: str, client_id: str | None = None) -> SiteProvider:
        return SiteProvider(request, app=self.get_app(request, provider=provider, client_id=client_id))

    def pre_social_login(self, request: HttpRequest, sociallogin: SocialLogin) -> NoReturn:
        """Log in, and leave allauth's flow."""
        claims = sociallogin.account.extra_data["id_token"]
        if claims.get("nonce") != sociallogin.state.get("nonce"):
            raise OAuth2Error("The ID token is not the answer to this request: its nonce is another one.")
        account, ended = identify(claims)
        if account is None or not account.user.is_active:
            raise ImmediateHttpResponse(_refused(request, INACTIVE if account else NO_ACCOUNT, status=403))
        follow(account.user, claims)
        log_in(request, account.user, backend=BACKEND)
        if ended:
            messages.warning(request, f"{LINKED} Ended: {', '.join(ended)}.")
        raise ImmediateHttpResponse(redirect(_next_of(request, sociallogin.state)))

    def on_authentication_error(self, request: HttpRequest, provider: Any, **kwargs: Any) -> NoReturn:
        log.warning("a login by OpenID Connect failed: %s %s", kwargs.get("error"), kwargs.get("exception") or "")
        raise ImmediateHttpResponse(_refused(request, FAILED, status=401))


def _refused(request: HttpRequest, why: str, *, status: int) -> HttpResponse:
    return render(request, "registration/oidc_failed.html", {"why": why}, status=status)


def _next_of(request: HttpRequest, state: Mapping[str, Any]) -> str:
    wanted = str(state.get("next") or "")
    safe = url_has_allowed_host_and_scheme(wanted, {request.get_host()}, require_https=request.is_secure())
    return wanted if safe else reverse(settings.LOGIN_REDIRECT_URL)


# -- accounts ----------------------------------------------------------------------------------------------------


@transaction.atomic
def identify(claims: Mapping[str, Any]) -> tuple[SocialAccount | None, list[str]]:
    """The account of issuer and subject, linked or made at the first login, with what has ended in it by the link.

    None: there is none, and none is made.
    """
    key = {"provider": settings.MOTLEY_OIDC_ISSUER, "uid": str(claims["sub"])}
    if known := SocialAccount.objects.select_related("user").filter(**key).first():
        return known, []
    invited = _invited(claims)
    user = invited or (_new_user(claims) if settings.MOTLEY_OIDC_ACCOUNTS == "all" else None)
    if user is None:
        return None, []
    linked = SocialAccount.objects.create(user=user, extra_data={}, **key)
    return linked, clear_for_link(user) if invited else []


def _invited(claims: Mapping[str, Any]) -> User | None:
    """The one account with the *verified* mail address; no administrator's, and none that an identity has already.

    Two with one address are nobody's: the other one could be an administrator's, or already linked.
    """
    mail = str(claims.get("email") or "")
    if claims.get("email_verified") is not True or not mail:
        return None
    accounts = list(User.objects.select_for_update(no_key=True).filter(email__iexact=mail).order_by("pk"))
    if len(accounts) != 1 or accounts[0].is_staff or accounts[0].is_superuser:
        return None
    linked = SocialAccount.objects.filter(provider=settings.MOTLEY_OIDC_ISSUER, user=accounts[0])
    return None if linked.exists() else accounts[0]


def _new_user(claims: Mapping[str, Any]) -> User:
    """A new account without a password, by the person's own name if nobody has it."""
    mail = _text(claims, "email") if claims.get("email_verified") is True else ""
    wanted = _text(claims, "preferred_username") or mail.partition("@")[0] or _text(claims, "sub")
    first, last = _text(claims, "given_name")[:150], _text(claims, "family_name")[:150]
    user = User(username=_free_name(wanted), email=mail[:254], first_name=first, last_name=last)
    user.set_unusable_password()
    user.save()
    return user


def _free_name(wanted: str) -> str:
    """The name, or the first with a number that no account has, whatever its case; reserved ones have a number, too."""
    base = NOT_IN_NAMES.sub("-", normal_name(wanted))[:MOST_OF_NAME] or "user"
    taken = names_in_use()
    numbered = (f"{base}-{number}" for number in range(2, len(taken) + 3))
    return next(name for name in (base, *numbered) if name.casefold() not in taken and not is_reserved(name))


def _text(claims: Mapping[str, Any], name: str) -> str:
    """The claim without characters that databases do not store."""
    return _printable(str(claims.get(name) or ""))


def _printable(text: str) -> str:
    return "".join(letter for letter in text if letter.isprintable())


def follow(user: User, claims: Mapping[str, Any]) -> None:
    """Give the person the teams of their groups; without the claim nothing changes."""
    groups = claims.get(settings.MOTLEY_OIDC_GROUPS_CLAIM)
    if isinstance(groups, list):
        wanted = granted_by(
            [_printable(str(group)) for group in groups], settings.MOTLEY_OIDC_TEAMS, settings.MOTLEY_OIDC_ADMIN_GROUP
        )
        follow_groups(user, wanted)
